#include <checkpoint/sharded_session.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_reader.hpp>
#include <danling/formats/detail/pickle.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/safetensors.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::RecordTree;

RecordTree texts(const std::vector<std::string>& values) {
  RecordTree::List out;
  for (const auto& value : values) {
    out.emplace_back(value);
  }
  return RecordTree(std::move(out));
}

}  // namespace

std::string pack_message(const ShardedMessage& message) {
  RecordTree::List failures;
  for (const auto& [number, text] : message.failures) {
    failures.emplace_back(RecordTree::List{number, text});
  }
  RecordTree::List outcomes;
  for (const auto& outcome : message.outcomes) {
    outcomes.emplace_back(RecordTree::List{outcome.number, outcome.name, outcome.history, outcome.best, outcome.seconds,
                                           texts(outcome.done.names), outcome.done.error, outcome.done.failed_alias,
                                           outcome.done.warning});
  }
  return formats::write_pickle(RecordTree(RecordTree::List{message.error, message.flag, message.expired, message.digest,
                                                           std::move(failures), std::move(outcomes)}),
                               {});
}

ShardedMessage unpack_message(const std::string& bytes) {
  const RecordTree tree = formats::read_pickle(bytes, "a message of another rank").tree;
  const auto& fields = tree.list();
  ShardedMessage out{
      fields.at(0).string(), fields.at(1).boolean(), fields.at(2).boolean(), fields.at(3).string(), {}, {}};
  for (const auto& failure : fields.at(4).list()) {
    out.failures.emplace_back(failure.list().at(0).integer(), failure.list().at(1).string());
  }
  for (const auto& item : fields.at(5).list()) {
    const auto& parts = item.list();
    ShardedOutcome outcome{parts.at(0).integer(), parts.at(1).string(), parts.at(2).string(),
                           parts.at(3).boolean(), parts.at(4).number(), {}};
    for (const auto& name : parts.at(5).list()) {
      outcome.done.names.push_back(name.string());
    }
    outcome.done.error = parts.at(6).string();
    outcome.done.failed_alias = parts.at(7).string();
    outcome.done.warning = parts.at(8).string();
    out.outcomes.push_back(std::move(outcome));
  }
  return out;
}

std::string ShardedSession::write(const ShardedSave& save, const ShardWork& work) {
  const fs::path target = directory.path() / save.target;
  try {
    ShardReport report = write_shard(target, rank_, work, save.verify);
    if (rank_ > 0) {
      leave_report(target, rank_, report);
    } else {
      own_ = std::move(report);
    }
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

void ShardedSession::complete(const ShardedSave& save) {
  const fs::path target = directory.path() / save.target;
  Published done;
  try {
    const std::string warning = directory.recreate(save.what.rules);
    std::vector<ShardReport> reports;
    reports.push_back(std::move(own_.value()));
    own_.reset();
    auto others = await_reports(target, world_size_, [&] { return reason_to_give_up(save.number); }, timeout_);
    std::move(others.begin(), others.end(), std::back_inserter(reports));
    if (!save.what.sync_first.empty()) {
      formats::sync_file(save.what.sync_first);
    }
    complete_checkpoint(target, std::move(reports), {save.what.score});
    formats::sync_directory(directory.path());
    done = directory.publish(save.what, save.target, save.running);
    done.warning = warning;
    if (!save.what.weights.empty() && done.error.empty()) {
      auto files = export_sharded(target, save.what.weights);
      std::move(files.begin(), files.end(), std::back_inserter(done.names));
    }
  } catch (const std::exception& error) {
    if (done.error.empty()) {
      done.error = error.what();
    }
  }
  finish(save, std::move(done));
}

void ShardedSession::fail(const ShardedSave& save, const std::string& error) {
  Published done;
  done.error = error;
  finish(save, std::move(done));
}

void ShardedSession::finish(const ShardedSave& save, Published done) {
  std::error_code error;
  if (!done.error.empty() && done.names.empty() &&
      fs::is_directory(directory.path() / save.target, error)) {  // frees space for the next save
    fs::remove(directory.path() / save.target / formats::dcp_manifest_name, error);
    fs::remove_all(directory.path() / save.target, error);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - save.requested).count();
  const auto& aliases = save.what.aliases;
  const std::lock_guard lock(mutex_);
  outcomes_.push_back({save.number, save.what.name, save.what.history.value_or(""),
                       std::find(aliases.begin(), aliases.end(), "best") != aliases.end(), seconds, std::move(done)});
}

void ShardedSession::run(const ShardedSave& save, const ShardWork& work, const std::string& copying_error) {
  const std::string error = copying_error.empty() ? write(save, work) : copying_error;
  if (error.empty()) {
    if (rank_ == 0) {
      complete(save);
    }
    return;
  }
  if (rank_ == 0) {
    fail(save, world_size_ > 1 ? concat("rank 0: ", error) : error);
    return;
  }
  leave_failure(directory.path() / save.target, rank_, error);
  const std::lock_guard lock(mutex_);
  failures_.emplace_back(save.number, error);
}

void ShardedSession::abandon(std::int64_t number, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  abandoned_.emplace(number, reason);
}

void ShardedSession::end() {
  const std::lock_guard lock(mutex_);
  ended_ = std::chrono::steady_clock::now();
}

std::string ShardedSession::reason_to_give_up(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto found = abandoned_.find(number); found != abandoned_.end()) {
    return found->second;
  }
  return ended_ && std::chrono::steady_clock::now() - *ended_ > std::chrono::seconds(5)
             ? "[checkpoint.write] expected the shards of all ranks, got the end of this process's manager"
             : "";
}

void ShardedSession::take(ShardedMessage& message) {
  const std::lock_guard lock(mutex_);
  message.failures = std::exchange(failures_, {});
  message.outcomes = std::exchange(outcomes_, {});
}

namespace {

struct ExportedTensor {
  const formats::DcpEntry* source;
  std::string name;
};

// The end of a file's name, and the name of the tensor in it: `models.critic.ema.fc.weight` is `fc.weight` of
// `-critic-ema`. Empty for what is no weight of a model.
std::optional<std::pair<std::string, std::string>> exported_name(std::string_view entry) {
  std::string suffix;
  if (constexpr std::string_view models = "models."; entry.starts_with(models)) {
    entry.remove_prefix(models.size());
    const std::size_t dot = entry.find('.');
    suffix = concat("-", entry.substr(0, dot));
    entry.remove_prefix(dot == entry.npos ? entry.size() : dot + 1);
  }
  for (const auto& [part, end] : {std::pair("model.", ""), std::pair("ema.", "-ema")}) {
    if (entry.starts_with(part)) {
      return std::pair(suffix + end, std::string(entry.substr(std::strlen(part))));
    }
  }
  return std::nullopt;
}

void export_tensors(formats::DcpReader& reader, const std::vector<ExportedTensor>& tensors, const fs::path& file) {
  std::vector<formats::SafetensorsEntry> entries;
  for (const auto& [source, name] : tensors) {
    entries.push_back({name, source->dtype, source->sizes, 0, 0});
  }
  formats::AtomicFile out(file);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  formats::write_safetensors(out, entries, {{"format", "pt"}}, [&](std::size_t number, const formats::PieceSink& sink) {
    const auto& entry = *tensors[number].source;
    std::uint64_t size = formats::dtype_size(entry.dtype);
    for (const auto extent : entry.sizes) {
      size *= static_cast<std::uint64_t>(extent);
    }
    for (std::uint64_t at = 0; at < size; at += piece.size()) {
      const auto part =
          std::span(piece).first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), size - at)));
      reader.read(entry, at, part);
      sink(part);
    }
  });
  out.commit();
}

}  // namespace

std::vector<std::string> export_sharded(const fs::path& checkpoint, const std::string& name) {
  formats::DcpReader reader(checkpoint);
  std::map<std::string, std::vector<ExportedTensor>> files;
  for (const auto& entry : reader.entries()) {
    if (const auto found = entry.is_tensor ? exported_name(entry.name) : std::nullopt) {
      files[found->first].push_back({&entry, found->second});
    }
  }
  std::vector<std::string> out;
  for (const auto& [suffix, tensors] : files) {
    const bool fits = std::all_of(tensors.begin(), tensors.end(), [](const ExportedTensor& tensor) {
      return !formats::safetensors_dtype(tensor.source->dtype).empty();
    });
    if (fits) {
      out.push_back(concat(name, suffix, ".safetensors"));
      export_tensors(reader, tensors, checkpoint.parent_path() / out.back());
    }
  }
  return out;
}

}  // namespace danling::inline v0
