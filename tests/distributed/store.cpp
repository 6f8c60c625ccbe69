// The store through which processes meet: the same answers as LibTorch's, to LibTorch's clients too; strangers; no
// questions to a name server.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include <limits>
#include <thread>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <distributed/sockets.hpp>
#include <distributed/store_client.hpp>
#include <distributed/store_protocol.hpp>
#include <distributed/store_server.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace store_test {

using Catch::Matchers::StartsWith;
using danling::detail::concat;
using danling::detail::listen_at;
using danling::detail::port_of;
using danling::detail::Socket;
using danling::detail::StoreClient;
using danling::detail::StoreQuery;
using danling::detail::StoreRequest;
using danling::detail::StoreServer;
using danling_test::error_of;
using danling_test::expect;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::vector<std::uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// A server at a port of its own.
struct Place {
  explicit Place(Socket listening = listen_at("127.0.0.1", 0))
      : port(port_of(listening)), server(std::make_unique<StoreServer>(std::move(listening))) {}
  int port;
  std::unique_ptr<StoreServer> server;

  c10::intrusive_ptr<StoreClient> client() const {
    return c10::make_intrusive<StoreClient>("127.0.0.1", port, Clock::now() + 30s, 30s);
  }
};

StorePtr torch_client(int port, bool serves) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = serves;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

/// Every request, and what each returned.
std::string conversation(c10d::Store& store, c10d::Store& other) {
  std::vector<std::string> out;
  const auto note = [&](const auto& value) { out.push_back(concat(value)); };
  store.set("a", bytes("1"));
  note(text(store.get("a")));
  store.set("a", bytes(std::string_view("x\0y", 3)));  // a value may have any bytes
  note(store.get("a").size());
  store.set("empty", bytes(""));
  note(store.get("empty").size());
  note(store.check({"a", "empty"}));
  note(store.check({"a", "none"}));
  note(store.add("count", 5));
  note(store.add("count", -7));
  note(store.add("edge", std::numeric_limits<std::int64_t>::max()) > 0);
  note(text(store.get("count")));
  note(text(store.compareSet("first", bytes(""), bytes("mine"))));
  note(text(other.compareSet("first", bytes(""), bytes("theirs"))));
  note(text(other.compareSet("first", bytes("mine"), bytes("theirs"))));
  note(text(store.compareSet("absent", bytes("old"), bytes("new"))));
  note(store.check({"absent"}));
  store.append("log", bytes("ab"));
  store.append("log", bytes("cd"));
  note(text(other.get("log")));
  other.multiSet({"m1", "m2"}, {bytes("one"), bytes("")});
  for (const auto& value : store.multiGet({"m1", "m2", "log"})) {
    note(text(value));
  }
  note(store.deleteKey("m1"));
  note(store.deleteKey("m1"));
  note(store.getNumKeys() - other.getNumKeys());
  note(store.hasExtendedApi());
  store.wait({"a", "count"});
  const std::string late = error_of<std::exception>([&] { store.wait({"a", "none"}, 50ms); });
  note(late.find("none") != std::string::npos);
  std::thread setter([&] {
    other.set("w1", bytes("1"));
    other.set("w2", bytes("2"));
  });
  store.wait({"w1", "w2", "w1"}, 30s);
  setter.join();
  note(text(store.clone()->get("w2")));
  return danling::detail::join(out, " ");
}

TEST_CASE("Store: client and server answer as LibTorch's, with LibTorch's at the other end too", "[distributed]") {
  const std::string expected =
      "1 3 0 true false 5 -2 true -2 mine mine theirs old false abcd one  abcd true false 0 true true 2";
  const int torch_port = danling_test::free_port();
  const StorePtr torch_server = torch_client(torch_port, true);
  CHECK(conversation(*torch_server, *torch_client(torch_port, false)) == expected);
  for (const bool own_server : {true, false}) {
    for (const bool own_client : {true, false}) {
      INFO("own server " << own_server << ", own client " << own_client);
      const Place place;
      const int port = own_server ? place.port : torch_port;
      const auto client = [&]() -> StorePtr {
        return c10::make_intrusive<c10d::PrefixStore>(
            concat(own_server, own_client),
            own_client ? StorePtr(c10::make_intrusive<StoreClient>("127.0.0.1", port, Clock::now() + 30s, 30s))
                       : torch_client(port, false));
      };
      CHECK(conversation(*client(), *client()) == expected);
    }
  }
}

TEST_CASE("Store: many clients count to one sum, and a large value arrives whole", "[distributed]") {
  const Place place;
  std::vector<std::jthread> threads;
  for (int number = 0; number < 40; ++number) {
    threads.emplace_back([&, number] {
      const auto client = place.client();
      for (int turn = 0; turn < 25; ++turn) {
        client->add("sum", number);
      }
      client->set(concat("done/", number), bytes("1"));
    });
  }
  std::vector<std::string> keys;
  for (int number = 0; number < 40; ++number) {
    keys.push_back(concat("done/", number));
  }
  const auto reader = place.client();
  reader->wait(keys, 60s);
  CHECK(reader->add("sum", 0) == 25 * (39 * 40 / 2));
  std::vector<std::uint8_t> large(20'000'000);
  for (std::size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }
  reader->set("large", large);
  CHECK((place.client()->get("large") == large));
}

TEST_CASE("Store: a wait that ends or is left open keeps nobody else waiting", "[distributed]") {
  const Place place;
  const auto waits = place.client(), sets = place.client();
  // A key that comes about when the wait gives up: it returns or throws, and the connection stays in step.
  for (int turn = 0; turn < 200; ++turn) {
    const std::string key = concat("k", turn);
    std::thread setter([&] { sets->set(key, bytes("v")); });
    try {
      waits->wait({key}, 1ms);
    } catch (const std::runtime_error& error) {
      CHECK(std::string(error.what()) == concat("no key ", key, " in the store within 0.001 s"));
    }
    setter.join();
    CHECK(text(waits->get(key)) == "v");
  }
  {
    const auto leaves = place.client();
    CHECK_THROWS(leaves->wait({"never"}, 1ms));
    std::thread other([&] { CHECK_NOTHROW(leaves->wait({"later"}, 30s)); });
    sets->set("later", bytes("1"));
    other.join();
  }
  sets->set("never", bytes("1"));
  CHECK_NOTHROW(waits->wait({"never"}, 30s));
}

TEST_CASE("Store: its end is seen by clients at rest, in a wait, and in a request", "[distributed]") {
  Place place;
  const auto rests = place.client(), waits = place.client();
  CHECK_FALSE(rests->ended());
  std::string in_wait;
  std::thread waiting([&] { in_wait = error_of<std::runtime_error>([&] { waits->wait({"never"}, 60s); }); });
  place.server.reset();
  waiting.join();
  CHECK_THAT(in_wait, StartsWith("the store has ended"));
  CHECK(rests->ended());
  CHECK_THAT(error_of<std::runtime_error>([&] { rests->check({"a"}); }), StartsWith("the store has ended"));
  CHECK_THROWS_AS(c10::make_intrusive<StoreClient>("127.0.0.1", place.port, Clock::now() + 200ms, 1s),
                  std::runtime_error);
}

/// Sends `message` in pieces of `piece` bytes and returns what comes back until the other end closes, or `wanted`
/// bytes.
std::string raw_answer(int port, std::string_view message, std::size_t piece, std::size_t wanted) {
  const auto reached = danling::detail::reach("127.0.0.1", port, Clock::now() + 30s);
  for (; !message.empty(); message.remove_prefix(std::min(piece, message.size()))) {
    if (send(reached.connection.fd(), message.data(), std::min(piece, message.size()), MSG_NOSIGNAL) < 0) {
      break;
    }
    std::this_thread::yield();
  }
  std::string answer;
  char block[256];
  while (answer.size() < wanted && danling::detail::wait_for(reached.connection, Clock::now() + 30s)) {
    const ssize_t got = recv(reached.connection.fd(), block, sizeof block, 0);
    if (got <= 0) {
      return answer + (got == 0 || errno == ECONNRESET ? "|closed" : "|error");
    }
    answer.append(block, static_cast<std::size_t>(got));
  }
  return answer;
}

TEST_CASE("Store: requests arrive in any pieces; strangers and damaged requests end their own connection alone",
          "[distributed]") {
  using danling::detail::store_magic;
  const Place place;
  const auto client = place.client();
  client->set("a", bytes("value"));
  StoreRequest two(StoreQuery::VALIDATE);
  two.number(store_magic).number(StoreQuery::SET).text("b").text("x").number(StoreQuery::GET).text("a");
  two.number(StoreQuery::PING).number(std::uint32_t{7});
  const std::string expected(StoreRequest().text("value").number(std::uint32_t{7}).bytes());
  for (const std::size_t piece : {1U, 2U, 3U, 7U, 1000U}) {
    CHECK(raw_answer(place.port, two.bytes(), piece, expected.size()) == expected);
  }
  CHECK(text(client->get("b")) == "x");
  const auto valid = [] { return StoreRequest(StoreQuery::VALIDATE).number(store_magic); };
  CHECK(raw_answer(place.port, "GET / HTTP/1.1\r\n\r\n", 100, 1) == "|closed");
  CHECK(raw_answer(place.port, StoreRequest(StoreQuery::GET).text("a").bytes(), 100, 1) == "|closed");
  CHECK(raw_answer(place.port, StoreRequest(StoreQuery::VALIDATE).number(std::uint32_t{1}).bytes(), 100, 1) ==
        "|closed");
  CHECK(raw_answer(place.port, valid().number(StoreQuery::GET).number(~std::uint64_t{0}).bytes(), 100, 1) == "|closed");
  CHECK(raw_answer(place.port, valid().number(std::uint8_t{200}).bytes(), 100, 1) == "|closed");
  client->set("word", bytes("word"));
  CHECK(raw_answer(place.port, valid().number(StoreQuery::ADD).text("word").number(std::int64_t{1}).bytes(), 100, 1) ==
        "|closed");
  CHECK(text(client->get("a")) == "value");
  CHECK(text(place.client()->get("word")) == "word");
}

TEST_CASE("Store: a connection that says nothing is closed, those of clients stay", "[distributed]") {
  const Place place;
  const auto client = place.client();
  CHECK(raw_answer(place.port, "", 1, 1) == "|closed");
  client->set("a", bytes("1"));
  CHECK(text(client->get("a")) == "1");
}

/// Makes this thread ask a name server that never answers; returns its socket.
Socket use_silent_name_server() {
  Socket server(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  expect(bind(server.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
             getsockname(server.fd(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
         "a socket");
  res_init();
  _res.nscount = 1;
  _res.nsaddr_list[0] = address;
  _res.retrans = 1;
  _res.retry = 1;
  return server;
}

bool was_asked(const Socket& server) {
  char byte = 0;
  return recv(server.fd(), &byte, 1, 0) >= 0;
}

TEST_CASE("Group: joins without a question to a name server, which may not answer", "[distributed]") {
  const int port = danling_test::free_port();
  const auto texts = danling_test::run_processes(2, [&](int rank) -> std::string {
    const Socket server = use_silent_name_server();
    {
      const auto group = danling::Group::connect(danling_test::identity_of_rank(rank, 2, port));
      group.barrier();
      expect(group.split(0).size() == 2, "a part");
    }
    if (was_asked(server)) {
      return "asked";
    }
    // LibTorch's client asks for the name of this address.
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
    char name[NI_MAXHOST];
    getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof address, name, sizeof name, nullptr, 0, 0);
    return was_asked(server) ? "not asked" : "no name server";
  });
  if (texts[0] == "no name server") {
    WARN("skipped: this machine asks no name server");
    return;
  }
  danling_test::check_ranks(texts, "not asked");
}

}  // namespace store_test
