// danling watch: the page, live.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <nlohmann/json.hpp>

#include <apps/command.hpp>
#include <apps/run_files.hpp>

// Compiled as one unit with the other tests.
namespace danling_test::watch_cases {
namespace {

using Json = nlohmann::json;

/// `danling watch <words>`, and its lines.
class Watch {
 public:
  explicit Watch(std::vector<std::string> words) {
    words.insert(words.begin(), {DANLING_COMMAND_BINARY, "watch"});
    std::vector<char*> arguments;
    for (auto& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      dup2(ends[1], 1);
      dup2(ends[1], 2);
      ::close(ends[0]);
      ::close(ends[1]);
      alarm(120);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Watch() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    ::close(output_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::string line() {
    std::string out;
    for (char c = 0; read(output_, &c, 1) == 1 && c != '\n';) {
      out += c;
    }
    return out;
  }
  /// Its exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void interrupt() const { kill(child_, SIGINT); }

 private:
  pid_t child_ = 0;
  int output_ = -1;
};

int port_in(const std::string& url) {
  const std::string begin = "http://127.0.0.1:";
  INFO(url);
  REQUIRE(url.starts_with(begin));
  REQUIRE(url.ends_with("/"));
  return std::stoi(url.substr(begin.size()));
}

struct Answer {
  int status = 0;
  std::string head, body;
};

Answer get(int port, const std::string& target) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const std::string request = "GET " + target + " HTTP/1.1\r\nHost: localhost:" + std::to_string(port) + "\r\n\r\n";
  REQUIRE(send(socket, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string text;
  char block[65536];
  for (ssize_t got = 0; (got = recv(socket, block, sizeof block, 0)) > 0;) {
    text.append(block, static_cast<std::size_t>(got));
  }
  close(socket);
  const auto end = text.find("\r\n\r\n");
  REQUIRE(end != std::string::npos);
  return {std::stoi(text.substr(9, 3)), text.substr(0, end), text.substr(end + 4)};
}

/// The data once they differ from those of `version`.
Json next_data(int port, std::int64_t version) {
  while (true) {
    const Answer answer = get(port, "/data.json?have=" + std::to_string(version));
    if (answer.status == 200) {
      return Json::parse(answer.body);
    }
    REQUIRE(answer.status == 204);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST_CASE("watch: serves the page, waits for a run that begins later, and follows it until it vanishes",
          "[apps][watch]") {
  const TempDir dir;
  const std::string path = (dir / "lin" / "0123456789ab").string();
  Watch watch({path});
  CHECK(watch.line() == path + ": no run yet; waiting");
  const int port = port_in(watch.line());
  const Answer page = get(port, "/");
  CHECK(page.status == 200);
  CHECK(page.head.find("Content-Type: text/html; charset=utf-8") != std::string::npos);
  CHECK(page.body.find("connect-src 'self'") != std::string::npos);
  Json data = next_data(port, -1);
  CHECK(data["live"] == true);
  CHECK(data["runs"][0]["status"] == "missing");
  CHECK(data["runs"][0]["notes"][0] == "no run in " + path + " now");

  write_run(dir.path(), {});
  CHECK(watch.line() == path + ": found the run");
  do {
    data = next_data(port, data["version"]);
  } while (data["runs"][0]["status"] != "finished" || data["runs"][0]["lines"] != 44);

  std::ofstream(path + "/metrics.jsonl", std::ios::app)
      << R"({"split":"train","mode":"train","global_step":41,"iteration":1,"loss":123.0})"
         "\n";
  data = next_data(port, data["version"]);
  CHECK(data["runs"][0]["lines"] == 45);
  const Json curves = data["runs"][0]["curves"];
  CHECK(std::any_of(curves.begin(), curves.end(),
                    [](const Json& curve) { return curve["last"] == Json::parse("[41, 123]"); }));

  // Nothing but the page and its data is served.
  for (const char* target : {"/metrics.jsonl", "/../metrics.jsonl", "/..%2f..%2fetc/passwd", "//", "/data.json/"}) {
    CHECK(get(port, target).status == 404);
  }
  std::filesystem::remove_all(path);
  CHECK(watch.line() == path + ": no run yet; waiting");
  data = next_data(port, data["version"]);
  CHECK(data["runs"][0]["notes"][0] == "no run in " + path + " now; its curves are those read earlier");
  CHECK(data["runs"][0]["curves"].size() == curves.size());
  watch.interrupt();
  CHECK(watch.line().empty());
  CHECK(watch.wait() == 0);
}

TEST_CASE("watch: a port that is taken is one clear error", "[apps][watch]") {
  const TempDir dir;
  const auto run = write_run(dir.path(), {});
  Watch first({run.string()});
  const int port = port_in(first.line());
  const auto second = run_danling({"watch", run.string(), "--port", std::to_string(port)});
  CHECK(second.code == 2);
  CHECK(second.err == "[loopback_server.open] expected to listen on 127.0.0.1:" + std::to_string(port) +
                          ", got 'Address already in use'; another process uses the port: choose another one, or 0 "
                          "for a free port\n");
  CHECK(get(port, "/").status == 200);
  const auto wrong = run_danling({"watch", run.string(), "--port", "70000"});
  CHECK(wrong.err == "[danling watch] expected --port of at most 65535, got 70000\n");
}

TEST_CASE("watch: the page follows a run in Chromium", "[apps][watch][browser]") {
  const TempDir dir;
  const auto run = write_run(dir.path(), {.status = ""});
  Watch watch({run.string()});
  const std::string url = watch.line();
  const std::string script = std::string("python3 '") + DANLING_SOURCE_DIR + "/tests/apps/watch_browser.py' '";
  const int status = std::system((script + url + "' '" + (run / "metrics.jsonl").string() + "'").c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    WARN("skipped: no Chromium (set DANLING_CHROMIUM), or no python3");
    return;
  }
  CHECK(status == 0);
  CHECK(get(port_in(url), "/").status == 200);  // after a browser that went away
}

}  // namespace
}  // namespace danling_test::watch_cases
