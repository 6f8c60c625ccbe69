#include <runner/members.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/formats/file.hpp>
#include <danling/workspace/files.hpp>

#include <core/host_name.hpp>
#include <distributed/packing.hpp>
#include <distributed/sockets.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* members_where = "runner.init_fault_tolerance";
constexpr auto pause = milliseconds(5);
constexpr auto lock_limit = milliseconds(20000);  // for operations that take milliseconds
constexpr std::string_view life_prefix = "life-";
constexpr std::string_view entry_prefix = "entry-";

/// The same for processes that can connect over loopback.
std::string machine_name() {
  try {
    return concat(host_name(), " ", read_text("/proc/sys/kernel/random/boot_id"));
  } catch (const Error&) {
    return host_name();
  }
}

std::string random_token() {
  std::random_device entropy;
  std::string out;
  for (int i = 0; i < 16; ++i) {
    out += "0123456789abcdef"[entropy() % 16];
  }
  return out;
}

int open_file(const fs::path& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  check<ConfigError>(file >= 0, members_where, "expected a directory for the processes of the run, got ", path.string(),
                     ": ", std::strerror(errno), "; set ft.directory to one that all of them can write");
  return file;
}

/// True if the process that holds the file's lock has ended. The file may be missing; if unsure, the process lives.
bool has_ended(const fs::path& life) {
  const int file = open(life.c_str(), O_RDWR | O_CLOEXEC);  // NFS locks only writable files
  if (file < 0) {
    return errno == ENOENT;
  }
  const bool free = flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return free;
}

/// One process at a time changes the plan. It never waits while it holds the lock, unless it is stopped.
class PlanLock {
 public:
  explicit PlanLock(const fs::path& directory) {
    const fs::path path = directory / "lock";
    const Clock::time_point deadline = Clock::now() + lock_limit;
    do {  // the last process of a run may have removed the directory meanwhile
      close_file();
      ensure_dir(directory);
      file_ = open_file(path);
      while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
        const int reason = errno;
        if ((reason != EINTR && reason != EWOULDBLOCK) || Clock::now() > deadline) {
          close_file();
          check<DistributedError>(reason != EWOULDBLOCK, members_where, "expected the lock of ", path.string(),
                                  " within ", format_seconds(lock_limit),
                                  ", got it held by another process, which may be stopped; "
                                  "end that process, and start this one again");
          fail<ConfigError>(members_where, "expected a file system with locks (flock) at ", directory.string(),
                            ", got ", std::strerror(reason), "; set ft.directory");
        }
        std::this_thread::sleep_for(milliseconds(1));
      }
    } while (!is_at(path));
  }
  ~PlanLock() { close_file(); }
  PlanLock(const PlanLock&) = delete;
  PlanLock& operator=(const PlanLock&) = delete;

 private:
  void close_file() {
    if (file_ >= 0) {
      close(std::exchange(file_, -1));
    }
  }
  bool is_at(const fs::path& path) const {
    struct stat own = {}, there = {};
    return fstat(file_, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
           own.st_ino == there.st_ino;
  }

  int file_ = -1;
};

}  // namespace

ProcessIdentity identity_in(const Generation& generation, ProcessIdentity own) {
  own.rank = static_cast<int>(generation.rank);
  own.world_size = static_cast<int>(generation.size);
  own.master_address = generation.host;
  own.master_port = generation.port;
  own.job = generation.run;
  own.rendezvous_id = concat("generation ", generation.number);  // members have joined more often than new processes
  own.launcher_hosts_store = false;
  return own;
}

/// The file of a live process.
struct Members::Entry {
  std::string token;
  std::int64_t wanted = 0;  ///< generation that it waits for, or is in
  std::int64_t generation = 0;
  std::int64_t order = 0;
  std::int64_t port = 0;
  std::int64_t late = 0;  ///< joined while others trained
  std::string machine, host;

  std::string packed() const {
    Packer packer;
    packer.text(token);
    for (const std::int64_t value : {wanted, generation, order, port, late}) {
      packer.number(value);
    }
    packer.text(machine);
    packer.text(host);
    return packer.take();
  }
  static Entry of(std::string_view text) {
    Unpacker unpacker(text);
    Entry out;
    out.token = unpacker.text();
    for (std::int64_t* value : {&out.wanted, &out.generation, &out.order, &out.port, &out.late}) {
      *value = unpacker.number();
    }
    out.machine = unpacker.text();
    out.host = unpacker.text();
    return out;
  }
};

struct Members::Plan {
  std::int64_t number = 0;
  std::string run, program, timestamp, host;
  std::int64_t port = 0;
  std::vector<std::string> tokens = {};  ///< by rank

  bool contains(const std::string& token) const {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  }
  std::string packed() const {
    Packer packer;
    packer.number(number);
    for (const std::string* text : {&run, &program, &timestamp, &host}) {
      packer.text(*text);
    }
    packer.number(port);
    packer.number(std::ssize(tokens));
    for (const std::string& token : tokens) {
      packer.text(token);
    }
    return packer.take();
  }
  static Plan of(std::string_view packed) {
    Unpacker unpacker(packed);
    Plan out;
    out.number = unpacker.number();
    for (std::string* text : {&out.run, &out.program, &out.timestamp, &out.host}) {
      *text = unpacker.text();
    }
    out.port = unpacker.number();
    for (std::int64_t left = unpacker.number(); left > 0; --left) {
      out.tokens.push_back(unpacker.text());
    }
    return out;
  }
};

Members::Members(MembersOptions options)
    : options_(std::move(options)), token_(random_token()), machine_(machine_name()), order_(options_.number) {
  ensure_dir(options_.directory);
  const PlanLock lock(options_.directory);
  const auto plan = read_plan();
  const auto all = entries();
  // Processes that wait to join train without the setup of a start, even if the last member has died meanwhile.
  late_ = plan && std::any_of(all.begin(), all.end(),
                              [&](const Entry& entry) { return entry.late != 0 || plan->contains(entry.token); });
  if (late_) {
    check<DistributedError>(plan->program == options_.program, members_where, "expected the program of the run in ",
                            options_.directory.string(), " (", plan->program, "), got ", options_.program,
                            "; start the same program, or wait until that run has ended");
    options_.timestamp = plan->timestamp;
  } else if (all.empty()) {  // no process of an earlier run is left
    for (const char* file : {"plan", "failed"}) {
      std::error_code missing;
      fs::remove(options_.directory / file, missing);
    }
  }
  const fs::path life = options_.directory / concat(life_prefix, token_);
  life_ = open_file(life);
  try {
    check<ConfigError>(flock(life_, LOCK_EX | LOCK_NB) == 0, members_where,
                       "expected a file system with locks (flock) at ", options_.directory.string(), ", got ",
                       std::strerror(errno), "; set ft.directory");
    announce();
  } catch (...) {
    std::error_code ignored;
    fs::remove(life, ignored);
    close(life_);
    throw;
  }
}

Members::~Members() {
  std::error_code ignored;
  fs::remove(options_.directory / concat(entry_prefix, token_), ignored);
  fs::remove(options_.directory / concat(life_prefix, token_), ignored);
  close(life_);
  try {
    const PlanLock lock(options_.directory);
    if (entries().empty()) {
      remove_files();
      fs::remove(options_.directory, ignored);
      if (options_.directory.parent_path().filename() == default_parent) {
        fs::remove(options_.directory.parent_path(), ignored);  // fails if other runs use it
      }
    }
  } catch (const std::exception&) {  // another process may have removed it
  }
}

// Removes the files of members. The directory may contain other files.
void Members::remove_files() const {
  formats::remove_stale_temporaries(options_.directory);
  std::error_code ignored;
  std::vector<fs::path> own = {options_.directory / "plan", options_.directory / "failed", options_.directory / "lock"};
  for (const auto& file : fs::directory_iterator(options_.directory, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(entry_prefix) || name.starts_with(life_prefix)) {
      own.push_back(file.path());
    }
  }
  for (const fs::path& file : own) {
    fs::remove(file, ignored);
  }
}

std::vector<Members::Entry> Members::entries() const {
  std::vector<Entry> out;
  std::error_code gone;
  for (const auto& file : fs::directory_iterator(options_.directory, gone)) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with(entry_prefix)) {
      continue;
    }
    const std::string token = name.substr(entry_prefix.size());
    if (token.find('.') != std::string::npos) {
      continue;  // another process is writing it
    }
    const fs::path life = options_.directory / concat(life_prefix, token);
    if (token != token_ && has_ended(life)) {
      fs::remove(file.path(), gone);
      fs::remove(life, gone);
      continue;
    }
    try {
      out.push_back(Entry::of(read_text(file.path())));
    } catch (const std::exception&) {  // the process left meanwhile
    }
  }
  return out;
}

std::optional<Members::Plan> Members::read_plan() const {
  std::error_code missing;
  const fs::path path = options_.directory / "plan";
  if (!fs::exists(path, missing)) {
    return std::nullopt;
  }
  return Plan::of(read_text(path));
}

void Members::announce() {
  const Entry mine{token_, wanted_, generation_, order_, port_, late_ ? 1 : 0, machine_, host_name()};
  write_atomic(options_.directory / concat(entry_prefix, token_), mine.packed());
}

void Members::check_failed() const {
  std::error_code missing;
  if (const fs::path file = options_.directory / "failed"; fs::exists(file, missing)) {
    throw DistributedError(read_text(file));
  }
}

void Members::fail(std::string_view words) noexcept {
  try {
    write_atomic(
        options_.directory / "failed",
        concat("[runner.train] expected every process to continue, got an error on rank ", order_, ": ", words));
  } catch (const std::exception&) {  // the others detect a dead member
  }
}

bool Members::has_waiting_process() const {
  if (std::ssize(tokens_) >= options_.most) {
    return false;
  }
  const auto all = entries();
  return std::any_of(all.begin(), all.end(), [&](const Entry& entry) { return entry.wanted > generation_; });
}

// Called under the lock. `last` is the plan to replace; if one of its members lives, its members decide.
bool Members::make_plan(const std::vector<Entry>& all, const std::optional<Plan>& last, bool overdue) {
  std::vector<Entry> here;
  bool awaits = false;
  for (const Entry& entry : all) {
    if (entry.wanted == wanted_) {
      here.push_back(entry);
    } else {
      awaits = awaits || (last && last->contains(entry.token));
    }
  }
  const auto enough = static_cast<std::size_t>(last || late_ ? options_.least : options_.size);
  const bool complete = here.size() >= enough && !awaits;
  if (!complete && !(overdue && here.size() >= static_cast<std::size_t>(options_.least))) {
    return false;
  }
  // Members keep their order; new processes follow.
  std::sort(here.begin(), here.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.generation == 0, a.order, a.token) < std::tuple(b.generation == 0, b.order, b.token);
  });
  if (std::ssize(here) > options_.most) {
    here.resize(static_cast<std::size_t>(options_.most));
  }
  const bool one_machine =
      std::all_of(here.begin(), here.end(), [&](const Entry& entry) { return entry.machine == here.front().machine; });
  Plan plan{.number = wanted_,
            .run = last ? last->run : token_,
            .program = options_.program,
            .timestamp = options_.timestamp,
            .host = one_machine ? "127.0.0.1" : here.front().host,
            .port = here.front().port};
  for (const Entry& entry : here) {
    plan.tokens.push_back(entry.token);
  }
  write_atomic(options_.directory / "plan", plan.packed());
  return true;
}

Generation Members::next() {
  const Clock::time_point begin = Clock::now();
  const bool is_member = generation_ > 0;
  wanted_ = 0;
  for (;; std::this_thread::sleep_for(pause)) {
    check_failed();
    if (const int signal = v0::stop_signal(); signal != 0) {
      v0::fail<DistributedError>(members_where, "expected the other processes in ", options_.directory.string(),
                                 ", got ", signal_name(signal), " while this one waited for them");
    }
    auto plan = read_plan();
    if (plan && plan->number > generation_ && plan->contains(token_)) {
      const auto place = std::find(plan->tokens.begin(), plan->tokens.end(), token_);
      generation_ = wanted_ = plan->number;
      order_ = place - plan->tokens.begin();
      announce();
      auto tokens = plan->tokens;
      std::sort(tokens.begin(), tokens.end());
      const bool same_members = tokens == std::exchange(tokens_, tokens);
      return {.number = generation_,
              .rank = order_,
              .size = std::ssize(plan->tokens),
              .host = plan->host,
              .port = static_cast<int>(plan->port),
              .timestamp = plan->timestamp,
              .run = plan->run,
              .same_members = same_members};
    }
    check<DistributedError>(!is_member || !plan || plan->number <= generation_, members_where,
                            "expected to join generation ", generation_ + 1,
                            " of the run, got excluded: the others continued without this process after ",
                            format_seconds(options_.absence_limit), " (ft.process_group_timeout_ms); start it again");
    const std::int64_t target = std::max(generation_, plan ? plan->number : 0) + 1;
    if (target != wanted_) {
      wanted_ = target;
      port_ = port_of(listen_at("127.0.0.1", 0));  // a free port; if another program takes it, all join again
      announce();
    }
    const PlanLock lock(options_.directory);
    plan = read_plan();
    if (plan && plan->number >= wanted_) {
      continue;
    }
    const auto all = entries();
    const bool continues =
        plan && std::any_of(all.begin(), all.end(), [&](const Entry& entry) { return plan->contains(entry.token); });
    if (continues && !is_member) {
      continue;  // its members decide
    }
    const auto waited = Clock::now() - begin;
    const bool overdue = waited > (continues ? options_.absence_limit : options_.start_limit);
    if (make_plan(all, continues ? plan : std::nullopt, overdue)) {
      continue;
    }
    check<DistributedError>(waited < options_.start_limit + options_.absence_limit, members_where, "expected at least ",
                            options_.least, " of ", options_.size, " processes in ", options_.directory.string(),
                            " within ", format_seconds(options_.start_limit), ", got ", all.size(),
                            "; start the missing ones (ft.min_replica_size, comm.init_timeout_seconds)");
  }
}

}  // namespace danling::inline v0::detail
