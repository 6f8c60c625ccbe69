#include <danling/checkpoint/io.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/formats/detail/mapped_file.hpp>
#include <danling/formats/detail/pickle.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/json_lines.hpp>

#include <checkpoint/io_arrays.hpp>

namespace danling::inline v0 {
namespace {

using detail::load_npy, detail::load_npz, detail::load_table, detail::save_npy, detail::save_npz, detail::save_table;
namespace fs = std::filesystem;

constexpr auto saving = "checkpoint.save";

// ---- values without tensors -----------------------------------------------------------------------------------------

// Converts to and from the parsers' trees, which have another tensor type. In a config's tree, tuples become lists and
// integer keys become texts, as in Python's JSON.
template <class To>
To without_tensors(const State& value, const std::string& path, std::string_view format) {
  constexpr bool pickled = std::same_as<To, formats::RecordTree>;
  const auto below = [&](const auto& key) { return path.empty() ? concat(key) : concat(path, ".", key); };
  if (value.is_list() || value.is_tuple()) {
    typename To::List out;
    for (std::size_t i = 0; i < value.items().size(); ++i) {
      out.push_back(without_tensors<To>(value.items()[i], below(i), format));
    }
    return pickled && value.is_tuple() ? To(typename To::Tuple{std::move(out)}) : To(std::move(out));
  }
  if (value.is_map()) {
    typename To::Map out;
    for (const auto& [key, item] : value.map()) {
      const std::string name = key.is_string() ? key.string() : key.text();
      if (!pickled && out.contains(Key(name))) {
        fail<CheckpointError>(saving, "expected keys with different texts, got ", quote(below(name)),
                              " as a number and as a text; save a .pth");
      }
      out.set(pickled ? key : Key(name), without_tensors<To>(item, below(name), format));
    }
    return out;
  }
  if (pickled && value.is_bytes()) {
    return To(value.bytes());
  }
  check<CheckpointError>(!value.is_tensor() && !value.is_bytes(), saving, "expected values that ", format,
                         " can store, got ", value.kind(), path.empty() ? "" : concat(" (key ", quote(path), ")"),
                         "; save a .pth");
  return value.is_null()      ? To()
         : value.is_bool()    ? To(value.boolean())
         : value.is_integer() ? To(value.integer())
         : value.is_double()  ? To(value.number())
                              : To(value.string());
}

template <class From>
State plain(const From& value) {
  if (value.is_list() || value.is_tuple()) {
    State::List out;
    for (const auto& item : value.items()) {
      out.push_back(plain(item));
    }
    return value.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  if (value.is_map()) {
    State::Map out;
    for (const auto& entry : value.map()) {
      out.set(entry.key, plain(entry.value));
    }
    return out;
  }
  return value.is_null()      ? State()
         : value.is_bool()    ? State(value.boolean())
         : value.is_integer() ? State(value.integer())
         : value.is_double()  ? State(value.number())
         : value.is_bytes()   ? State(value.bytes())
                              : State(value.string());
}

void append_json(const std::string& text, std::string& out) {
  static constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += concat('\\', c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += concat("\\u00", digits[static_cast<unsigned char>(c) >> 4], digits[c & 15]);
    } else {
      out += c;
    }
  }
  out += '"';
}

// Uses the separators of json.dumps.
void append_json(const ConfigTree& value, std::string& out) {
  if (value.is_map() || value.is_list()) {
    out += value.is_map() ? '{' : '[';
    const std::size_t begin = out.size();
    const auto separate = [&] { out += out.size() == begin ? "" : ", "; };
    if (value.is_list()) {
      for (const auto& item : value.list()) {
        separate();
        append_json(item, out);
      }
    } else {
      for (const auto& [key, item] : value.map()) {
        separate();
        append_json(key.string(), out);
        out += ": ";
        append_json(item, out);
      }
    }
    out += value.is_map() ? '}' : ']';
  } else if (value.is_string()) {
    append_json(value.string(), out);
  } else if (value.is_double()) {
    const double number = value.number();
    out += std::isnan(number) ? "NaN" : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity") : to_text(number);
  } else {
    out += value.is_null() ? "null" : value.is_bool() ? to_text(value.boolean()) : to_text(value.integer());
  }
}

State load_json(const fs::path& file) {
  const formats::MappedFile content(file, formats::Access::sequential);
  return plain(formats::parse_json(content.text(), concat("file ", quote(file.string())), {.allow_nan = true}));
}

void save_json(const State& object, const fs::path& file) {
  std::string text;
  append_json(without_tensors<ConfigTree>(object, "", "JSON"), text);
  formats::replace_file(file, text);
}

State load_yaml(const fs::path& file) {
  const formats::MappedFile content(file, formats::Access::sequential);
  return plain(from_yaml(content.text(), file.string()));
}

void save_yaml(const State& object, const fs::path& file) {
  formats::replace_file(file, to_yaml(without_tensors<ConfigTree>(object, "", "YAML")));
}

State load_pickle(const fs::path& file) {
  const formats::MappedFile content(file, formats::Access::sequential);
  const std::string source = concat("file ", quote(file.string()));
  const formats::PickledTree tree = formats::read_pickle(content.text(), source);
  check<CheckpointError>(tree.storages.empty(), "checkpoint.load", "expected a pickle without tensors, got one with ",
                         tree.storages.size(), " (", source, "); write tensors by torch.save");
  return plain(tree.tree);
}

void save_pickle(const State& object, const fs::path& file) {
  formats::replace_file(file, formats::write_pickle(without_tensors<formats::RecordTree>(object, "", "a pickle"), {}));
}

// ---- by extension ---------------------------------------------------------------------------------------------------

struct Format {
  std::string_view extension;
  State (*load)(const fs::path& file);
  void (*save)(const State& object, const fs::path& file);
};

void save_weights(const State& object, const fs::path& file) { save_safetensors(object, file); }

constexpr std::array<Format, 13> known_formats = {{
    {".pth", load_file, save_file},
    {".pt", load_file, save_file},
    {".safetensors", load_safetensors, save_weights},
    {".npy", load_npy, save_npy},
    {".npz", load_npz, save_npz},
    {".json", load_json, save_json},
    {".yaml", load_yaml, save_yaml},
    {".yml", load_yaml, save_yaml},
    {".csv", load_table, save_table},
    {".tsv", load_table, save_table},
    {".pkl", load_pickle, save_pickle},
    {".pickle", load_pickle, save_pickle},
    {".ckpt", load_file, save_file},  // Lightning's
}};

const Format& format_of(const fs::path& file, std::string_view operation) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::vector<std::string> names;
  for (const Format& format : known_formats) {
    if (format.extension == extension) {
      return format;
    }
    names.emplace_back(format.extension);
  }
  fail<ConfigError>(operation, "expected a file whose name ends in one of ", join(names), ", got ",
                    quote(file.string()), did_you_mean(extension, names));
}

}  // namespace

State load(const fs::path& file) { return format_of(file, "checkpoint.load").load(file); }

fs::path save(const State& object, const fs::path& file) {
  const Format& format = format_of(file, saving);
  if (file.has_parent_path()) {
    std::error_code error;
    fs::create_directories(file.parent_path(), error);  // on failure, creating the file fails too
  }
  format.save(object, file);
  return file;
}

fs::path save(ConstSectionRef config, const fs::path& file) { return save(convert_tree<State>(to_tree(config)), file); }

}  // namespace danling::inline v0
