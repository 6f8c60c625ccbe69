// The files of page/, which cmake/EmbedPage.cmake writes into the program.
#pragma once

#include <string_view>

namespace danling_command {

extern const std::string_view page_frame;   ///< page.html
extern const std::string_view page_style;   ///< page.css
extern const std::string_view page_script;  ///< the scripts, in the order of their names

}  // namespace danling_command
