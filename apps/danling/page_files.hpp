// The files of page/, which cmake/EmbedPage.cmake embeds in the program.
#pragma once

#include <string_view>

namespace danling_command {

extern const std::string_view page_frame;   ///< page.html
extern const std::string_view page_style;   ///< page.css
extern const std::string_view page_script;  ///< the scripts, sorted by name

}  // namespace danling_command
