// Config files in JSON.
#include "config_target.hpp"

namespace danling_fuzz {

const Allowance allowance{std::size_t{1} << 22, 4096};

void run(std::string_view input) {
  const danling::detail::Origin origin{"fuzz.json", true};
  assign_and_write(danling::detail::read_json(input, origin), origin);
}

}  // namespace danling_fuzz
