// Config files in YAML.
#include "config_target.hpp"

namespace danling_fuzz {

const Allowance allowance{std::size_t{1} << 26, 8192};

void run(std::string_view input) {
  const danling::detail::Origin origin{"fuzz.yaml", true};
  assign_and_write(danling::detail::read_yaml(input, origin), origin);
}

}  // namespace danling_fuzz
