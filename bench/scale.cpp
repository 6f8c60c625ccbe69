// Predicts the communication time of many ranks: ./dev bench scale [--quick]. docs/scale.md shows the output.
//
// Counts the bytes that this library sends with 2 to 32 ranks on this machine and compares each count with a closed
// form; fails if they differ. Then evaluates the forms for 8 to 10,000 ranks, with published figures for links.
#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "peers.hpp"
#include "results.hpp"
#include "scale_counts.hpp"
#include "scale_model.hpp"

namespace {

using namespace bench::scale;

// Published figures; docs/scale.md names the sources.
const Link ethernet = {"25 Gb/s Ethernet, TCP of a cloud: 50 us, 3.125 GB/s", 50e-6, 3.125e9};
const Link fabric = {"200 Gb/s network, a hop of NCCL: 9.6 us, 25 GB/s", 9.6e-6, 25e9};

std::string text(double seconds) {
  if (seconds == 0.0) {
    return "-";
  }
  char out[32];
  const bool long_time = seconds >= 1.0, short_time = seconds < 1e-3;
  std::snprintf(out, sizeof out, "%.*f %s", seconds >= 100 ? 0 : 1,
                seconds * (long_time    ? 1.0
                           : short_time ? 1e6
                                        : 1e3),
                long_time    ? "s"
                : short_time ? "us"
                             : "ms");
  return out;
}

std::string size_text(double bytes) {
  char out[32];
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) {
    bytes /= 1000;
  }
  std::snprintf(out, sizeof out, bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return out;
}

int rows = 0;

void row(const std::vector<std::string>& cells) {
  ++rows;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::printf(i == 0 ? "%-34s" : " %10s", cells[i].c_str());
  }
  std::printf("\n");
}

void title(const std::string& words, const std::vector<std::string>& columns) {
  std::printf("\n%s\n", words.c_str());
  row(columns);
  --rows;
}

std::string whole(double value) {
  char out[32];
  std::snprintf(out, sizeof out, "%.0f", value);
  return out;
}

/// Prints and compares a count and its closed form.
void compare(const std::string& what, int ranks, double counted, double form, double tolerance) {
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.3f", counted / form);
  row({what, std::to_string(ranks), whole(counted), whole(form), ratio});
  if (!(std::abs(counted - form) <= tolerance * form)) {
    bench::gaps().push_back(what + " of " + std::to_string(ranks) + " ranks: the closed form is wrong");
    return;
  }
  bench::record_check(what + ", " + std::to_string(ranks) + " ranks: counted and closed form", counted, 2,
                      std::abs(counted / form - 1), tolerance);
}

const char* name_of(Mesh mesh) {
  return mesh == Mesh::plain ? "as it comes" : mesh == Mesh::numbered ? "numbered by rank" : "numbered, in batches";
}
constexpr Mesh meshes[] = {Mesh::plain, Mesh::numbered, Mesh::batched};

/// Returns the bytes of an entry in the store, which holds the machine's name, from the count with two ranks.
double compare_joins(const std::vector<int>& sizes) {
  title("second mesh of Gloo, ranks as processes: bytes that rank 0 writes", {"", "ranks", "counted", "form", "ratio"});
  double entry = 0.0;
  for (const Mesh mesh : meshes) {
    for (const int ranks : sizes) {
      const Joined joined = count_join(ranks, mesh);
      if (entry == 0.0) {
        entry = (joined.split_bytes - mesh_bytes(ranks, 0.0, mesh)) / (ranks * ranks);
      }
      compare(name_of(mesh), ranks, joined.split_bytes, mesh_bytes(ranks, entry, mesh), 0.1);
      if (mesh == Mesh::plain) {
        compare("  requests to its store", ranks, joined.split_reads, mesh_requests(ranks, mesh), 0.3);
        compare("  its sockets", ranks, joined.sockets, sockets_of_first(ranks), 0.2);
        compare("  those of another rank", ranks, joined.others, sockets_of_others(ranks), 0.2);
      }
    }
  }
  std::printf("an entry of the store: %.0f bytes\n", entry);
  return entry;
}

void compare_counts(const std::vector<int>& sizes) {
  title("collectives, ranks as threads: bytes that a rank writes to sockets",
        {"", "ranks", "counted", "form", "ratio"});
  constexpr double sum_bytes = 4 << 20;
  for (const int ranks : sizes) {
    const double n = ranks;
    compare("exchange_packets()", ranks, count_agreement(ranks, 5).bytes,
            on_sockets(exchange_bytes(n, 128), 2 * (n - 1)), 0.01);
    compare("all_reduce of 4 MiB", ranks, count_sum(ranks, sum_bytes, 2).bytes,
            on_sockets(ring_sum_bytes(n, sum_bytes), 4 * (n - 1)), 0.01);
    compare("all_gather of rows, 1 MiB", ranks, count_rows(ranks, 1 << 20, 2).bytes,
            on_sockets(exchange_bytes(n, shape_bytes) + (n - 1) * (1 << 20), 3 * (n - 1)), 0.01);
    const double shapes = 8 + shape_bytes * n;
    const double gathers = shapes > payload_bytes ? 2 : 1;
    compare("all_to_all of n numbers", ranks, count_requests_of_parts(ranks, 2).bytes,
            on_sockets(exchange_bytes(n, shapes) + 4 * (n - 1), (2 * gathers + 1) * (n - 1)), 0.01);
  }
}

/// Ranks as threads share the cores of this machine: their times are those of links only if cores are free.
void show_times(const std::vector<int>& sizes, const Link& loopback) {
  title("exchange_packets() on this machine, over loopback", {"", "ranks", "measured", "form", "cores busy"});
  for (const int ranks : sizes) {
    const Counts counts = count_agreement(ranks, 50);
    char cores[32];
    std::snprintf(cores, sizeof cores, "%.1f", counts.cpu * ranks / counts.seconds);
    row({"", std::to_string(ranks), text(counts.seconds), text(exchange(loopback, ranks, 128)), cores});
  }
}

void compare_simulation(const std::vector<std::int64_t>& sizes) {
  title("exchange_packets() over Ethernet, message by message", {"", "ranks", "simulated", "form", "random hops"});
  for (const std::int64_t ranks : sizes) {
    const double exact = simulate_ring_gather(ethernet, ranks, packet_bytes, false);
    const double form = ring_gather(ethernet, static_cast<double>(ranks), packet_bytes);
    row({"", std::to_string(ranks), text(exact), text(form),
         text(simulate_ring_gather(ethernet, ranks, packet_bytes, true))});
    if (!(std::abs(exact - form) <= 1e-9 * form)) {
      bench::gaps().push_back("exchange_packets(): the simulation and the closed form differ");
    }
  }
}

double mesh_time(double n, double entry, double store_rate, Mesh mesh) {
  return mesh_requests(n, mesh) / store_rate + mesh_bytes(n, entry, mesh) / ethernet.bandwidth;
}

/// Compares with the times that Gloo's developers report until all ranks are connected.
void compare_published(double entry, double store_rate) {
  title("a mesh: time of the store, and the published total time", {"", "ranks", "form", "published"});
  const struct {
    Mesh mesh;
    double ranks, seconds;
  } reports[] = {{Mesh::plain, 2048, 82},         {Mesh::plain, 4096, 393},  {Mesh::plain, 8192, 55 * 60},
                 {Mesh::numbered, 8192, 20 * 60}, {Mesh::batched, 2048, 18}, {Mesh::batched, 4096, 25},
                 {Mesh::batched, 8192, 85}};  // github.com/pytorch/gloo/pull/407 and 408
  for (const auto& report : reports) {
    row({name_of(report.mesh), whole(report.ranks), text(mesh_time(report.ranks, entry, store_rate, report.mesh)),
         text(report.seconds)});
  }
}

std::vector<std::string> head(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> out = {"ranks"};
  for (const std::int64_t ranks : sizes) {
    out.push_back(std::to_string(ranks));
  }
  return out;
}

template <class Time>
void line(const std::string& name, const std::vector<std::int64_t>& sizes, const Time& time) {
  std::vector<std::string> cells = {name};
  for (const std::int64_t ranks : sizes) {
    cells.push_back(time(ranks));
  }
  row(cells);
}

void show_steps(const Link& link, const std::vector<Model>& models, const std::vector<std::int64_t>& sizes,
                double state) {
  title(link.name, head(sizes));
  const auto times = [&](const std::string& name, const auto& time) {
    line(name, sizes, [&](std::int64_t ranks) { return text(time(static_cast<double>(ranks))); });
  };
  times("exchange_packets(), each step", [&](double n) { return exchange(link, n, 128); });
  for (const Model& model : models) {
    times("ring sum, " + model.name, [&](double n) { return ring_sum_of(link, n, model); });
  }
  for (const Model& model : models) {
    times("tree sum, " + model.name,
          [&](double n) { return tree_sum(link, static_cast<std::int64_t>(n), model.bytes()).total(); });
  }
  times("  of it requests", [&](double n) { return tree_sum(link, static_cast<std::int64_t>(n), 4).requests; });
  times("line of the log, 4 exchanges", [&](double n) { return 4 * exchange(link, n, 128); });
  times("save: states of ranks", [&](double n) { return exchange(link, n, state); });
}

void show_start(const std::vector<std::int64_t>& sizes, double entry, double store_rate, double state) {
  title("start, and what grows in a process", head(sizes));
  const auto cells = [&](const std::string& name, const auto& cell) {
    line(name, sizes, [&](std::int64_t ranks) { return cell(static_cast<double>(ranks)); });
  };
  cells("connections, two meshes", [](double n) { return whole(n * (n - 1)); });
  cells("sockets of rank 0", [](double n) { return whole(sockets_of_first(n)); });
  cells("sockets of another rank", [](double n) { return whole(sockets_of_others(n)); });
  cells("polls while the ranks join, 1/s",
        [](double n) { return whole(n / std::min(std::max(n, 20.0), 500.0) * 1000); });
  for (const Mesh mesh : meshes) {
    cells(std::string("a mesh, ") + name_of(mesh), [&](double n) { return size_text(mesh_bytes(n, entry, mesh)); });
    cells("  requests to the store", [&](double n) { return whole(mesh_requests(n, mesh)); });
    cells("  time of the store", [&](double n) { return text(mesh_time(n, entry, store_rate, mesh)); });
  }
  cells("exchange_packets(): bytes to a rank", [](double n) { return size_text(exchange_bytes(n, 128)); });
  cells("tree: bytes of requests to a rank",
        [](double n) { return size_text(exchange_bytes(n, 8 + shape_bytes * n)); });
  cells("save: bytes to a rank", [&](double n) { return size_text(exchange_bytes(n, state)); });
}

void show_changes(const Model& model, const std::vector<std::int64_t>& sizes) {
  title("changes: exchange_packets(), over Ethernet", head(sizes));
  const auto times = [&](const std::string& name, const auto& time) {
    line(name, sizes, [&](std::int64_t ranks) { return text(time(static_cast<double>(ranks))); });
  };
  times("ring, as it is", [](double n) { return exchange(ethernet, n, 128); });
  times("ring of machines of 8", [](double n) { return ring_gather(ethernet, std::ceil(n / 8), 8 * packet_bytes); });
  times("tree, up and down", [](double n) { return 2 * rounds(n) * ethernet.of(packet_bytes); });
  title("changes: sum of " + model.name, head(sizes));
  times("ring of Gloo, 25 Gb/s", [&](double n) { return ring_sum_of(ethernet, n, model); });
  times("ring of machines of 8, 25 Gb/s",
        [&](double n) { return n > 8 ? ring_sum_of(ethernet, std::ceil(n / 8), model) : 0.0; });
  times("tree, requests as of start()", [&](double n) {
    const TreeTimes tree = tree_sum(ethernet, static_cast<std::int64_t>(n), model.bytes());
    return tree.total() - tree.requests;
  });
  times("the same, sums by ring",
        [&](double n) { return all_to_all(ethernet, n, model.bytes()) + ring_gather(ethernet, n, model.bytes() / n); });
  times("NCCL's model, 200 Gb/s a machine", [&](double n) { return nccl_sum(n, model.bytes(), fabric.bandwidth); });
}

int run(bool quick) {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  // Forks, so it comes first.
  const double entry = compare_joins(quick ? std::vector<int>{2, 4} : std::vector<int>{2, 4, 8, 16});
  // 32 ranks in one process have a thousand sockets.
  std::vector<int> counted = quick ? std::vector<int>{2, 4} : std::vector<int>{2, 8, 16};
  if (!quick && files.rlim_cur > 2048) {
    counted.push_back(32);
  }
  compare_counts(counted);
  compare_simulation(quick ? std::vector<std::int64_t>{8, 64} : std::vector<std::int64_t>{8, 64, 1000, 10000});

  const Measured measured = measure_link(quick ? 50 : 500);
  const Link loopback = {"loopback", measured.alpha, measured.bandwidth};
  show_times(counted, loopback);
  const double store_rate = measure_store(8, quick ? 0.2 : 1.0);
  const double state = generator_state_bytes();
  std::printf("\nloopback, Gloo: %s to another rank, %.2f GB/s; a store answers %.0f requests a second\n",
              text(loopback.alpha).c_str(), loopback.bandwidth / 1e9, store_rate);

  bench::record_value("loopback, Gloo: to another rank", 1e6 * loopback.alpha, "us");
  bench::record_value("loopback, Gloo: bandwidth", loopback.bandwidth / 1e9, "GB/s");
  bench::record_value("requests that a store answers", store_rate, "1/s");

  const std::vector<std::int64_t> sizes =
      quick ? std::vector<std::int64_t>{8, 64, 1000} : std::vector<std::int64_t>{8, 64, 1000, 10000};
  const std::vector<Model> models = {layers("1.86 M", {784, 1024, 1024, 10}),
                                     layers("100 M", std::vector<double>(25, 2048)),
                                     layers("1 B", std::vector<double>(61, 4096))};
  for (const Model& model : models) {
    std::printf("model %s: %.0f parameters in %zu tensors, %zu buckets\n", model.name.c_str(), model.count(),
                model.numels.size(), model.buckets().size());
  }
  compare_published(entry, store_rate);
  show_start(sizes, entry, store_rate, state);
  show_steps(ethernet, models, sizes, state);
  show_steps(fabric, models, sizes, state);
  show_changes(models[1], sizes);
  if (rows == 0) {
    bench::give_up("expected rows, got none");
  }
  return bench::finish();
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("scale", argc, argv);
  const bool quick = bench::is_quick();
  if (argc > 2 || (argc == 2 && !quick)) {
    std::fprintf(stderr, "usage: bench_scale [--quick]\n");
    return 2;
  }
  try {
    return run(quick);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
