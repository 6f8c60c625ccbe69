// Writes trees as YAML text, without a library, since the hash of a config depends on every byte.
#include <algorithm>

#include <danling/config/tree.hpp>

#include <config/field_spec.hpp>
#include <config/number.hpp>
#include <core/fmt.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

std::string number_text(double value) {
  std::string text = to_text(value);
  if (text == "nan") return ".nan";
  if (text == "inf") return ".inf";
  if (text == "-inf") return "-.inf";
  // YAML 1.1 reads `1e-09` as a string.
  const auto exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

bool is_plain(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == '/' || c == '+';
  };
  return !reads_as_other(text) && std::all_of(text.begin(), text.end(), allowed);
}

/// A character that must be escaped: its code and its bytes in UTF-8; 0 bytes for any other.
struct Escaped {
  unsigned code = 0;
  std::size_t bytes = 0;
};

/// Controls, the line separators of Unicode, and its non-characters, which YAML does not print.
Escaped escaped_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  if (byte(0) < 0x20 || byte(0) == 0x7f) {
    return {byte(0), 1};
  }
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) {
    return {byte(1), 2};
  }
  if ((byte(0) == 0xe2 && byte(1) == 0x80 && (byte(2) == 0xa8 || byte(2) == 0xa9)) ||
      (byte(0) == 0xef && ((byte(1) == 0xbb && byte(2) == 0xbf) || (byte(1) == 0xbf && byte(2) >= 0xbe)))) {
    return {((byte(0) & 15U) << 12U) | ((byte(1) & 63U) << 6U) | (byte(2) & 63U), 3};
  }
  return {};
}

std::string text_scalar(std::string_view text) {
  if (is_plain(text)) {
    return std::string(text);
  }
  bool any_escaped = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    any_escaped = any_escaped || escaped_at(text, i).bytes != 0;
  }
  std::string out;
  if (!any_escaped) {
    out = "'";
    for (const char c : text) {
      out += c;
      if (c == '\'') out += c;
    }
    return out + "'";
  }
  out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (const Escaped escaped = escaped_at(text, i); escaped.bytes != 0) {
      out += escaped.code < 0x100 ? format_text("\\x{:02x}", escaped.code) : format_text("\\u{:04x}", escaped.code);
      i += escaped.bytes - 1;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool is_scalar(const ConfigTree& tree) { return !tree.is_list() && !tree.is_map(); }

std::string scalar_text(const ConfigTree& tree) {
  if (tree.is_null()) return "null";
  if (tree.is_bool()) return to_text(tree.boolean());
  if (tree.is_integer()) return to_text(tree.integer());
  if (tree.is_double()) return number_text(tree.number());
  return text_scalar(tree.string());
}

void write_map(std::string& out, const ConfigTree& tree, std::size_t indent, bool first_inline);

/// Writes a value after `key:` or `-`.
void write_value(std::string& out, const ConfigTree& tree, std::size_t indent) {
  if (tree.is_map() && !tree.map().empty()) {
    out += '\n';
    write_map(out, tree, indent + 2, false);
  } else if (tree.is_list() && !std::all_of(tree.list().begin(), tree.list().end(), is_scalar)) {
    out += '\n';
    for (const auto& item : tree.list()) {
      out.append(indent, ' ');
      out += "- ";
      if (item.is_map() && !item.map().empty()) {
        write_map(out, item, indent + 2, true);
      } else {
        out += inline_yaml(item) + "\n";
      }
    }
  } else {
    out += ' ' + inline_yaml(tree) + '\n';
  }
}

void write_map(std::string& out, const ConfigTree& tree, std::size_t indent, bool first_inline) {
  for (const auto& entry : tree.map()) {
    if (!first_inline) {
      out.append(indent, ' ');
    }
    first_inline = false;
    out += text_scalar(entry.key.string()) + ":";
    write_value(out, entry.value, indent);
  }
}

ConfigTree sorted(const ConfigTree& tree) {
  if (tree.is_list()) {
    ConfigTree::List items;
    for (const auto& item : tree.list()) {
      items.push_back(sorted(item));
    }
    return ConfigTree(std::move(items));
  }
  if (!tree.is_map()) {
    return tree;
  }
  std::vector<std::string> keys;
  for (const auto& entry : tree.map()) {
    keys.push_back(entry.key.string());
  }
  std::sort(keys.begin(), keys.end());
  ConfigTree::Map out;
  for (const auto& key : keys) {
    out.set(key, sorted(tree.at(key)));
  }
  return ConfigTree(std::move(out));
}

}  // namespace

std::string inline_yaml(const ConfigTree& tree) {
  std::string out;
  if (tree.is_list()) {
    for (const auto& item : tree.list()) {
      out += (out.empty() ? "" : ", ") + inline_yaml(item);
    }
    return "[" + out + "]";
  }
  if (tree.is_map()) {
    for (const auto& entry : tree.map()) {
      out += (out.empty() ? "" : ", ") + text_scalar(entry.key.string()) + ": " + inline_yaml(entry.value);
    }
    return "{" + out + "}";
  }
  return scalar_text(tree);
}

}  // namespace detail

std::string to_yaml(const ConfigTree& tree) {
  std::string out;
  if (tree.is_map() && !tree.map().empty()) {
    detail::write_map(out, tree, 0, false);
  } else {
    out = detail::inline_yaml(tree) + "\n";
  }
  return out;
}

std::string canonical_yaml(ConstSectionRef section) { return to_yaml(detail::sorted(semantic_tree(section))); }

}  // namespace danling::inline v0
