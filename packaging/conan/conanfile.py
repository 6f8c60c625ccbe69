"""The Conan 2 recipe of danling. LibTorch 2.11 to 2.13 is in no Conan index: `torch_dir` names one on this machine."""

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class Danling(ConanFile):
    name = "danling"
    version = "0.1.0"
    description = "A training runner for LibTorch"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "images": [True, False],
        "tables": [True, False],
        "archives": [True, False],
        "command": [True, False],
        # The directory of a LibTorch, with share/cmake/Torch in it. Not part of the package's id: its version is checked
        # when the package is used.
        "torch_dir": ["ANY"],
        # The packages of the system instead of Conan's, for machines without an index.
        "system_libraries": [True, False],
    }
    default_options = {
        "shared": True,
        "images": True,
        "tables": True,
        "archives": True,
        "command": True,
        "torch_dir": "",
        "system_libraries": False,
        # danling compiles both in one source each; the recipes name the targets by this option.
        "fmt/*:header_only": True,
        "spdlog/*:header_only": True,
    }
    # All that the library, the command and cmake --install read.
    sources_of = ("CHANGELOG.md", "CMakeLists.txt", "CONTRIBUTING.md", "LICENSE", "README.md", "apps/*", "cmake/*", "docs/*",
                  "examples/*", "include/*", "src/*", "tools/fetch_libtorch.py")

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in Danling.sources_of:
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        if self.options.system_libraries:
            return
        self.requires("fmt/10.2.1")
        self.requires("nlohmann_json/3.11.3")
        self.requires("spdlog/1.14.1")
        self.requires("xxhash/0.8.2")
        self.requires("yaml-cpp/0.8.0")
        self.requires("zlib/1.3.1")
        if self.options.images:
            self.requires("libjpeg/9f")
            self.requires("libpng/1.6.44")

    def package_id(self):
        del self.info.options.torch_dir

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("danling builds on Linux only")
        config = os.path.join(str(self.options.torch_dir), "share", "cmake", "Torch", "TorchConfig.cmake")
        if not os.path.isfile(config):
            raise ConanInvalidConfiguration(f"expected the directory of a LibTorch in torch_dir, found no {config}")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update(
            {
                "DANLING_BUILD_APPS": bool(self.options.command),
                "DANLING_BUILD_BENCH": False,
                "DANLING_BUILD_EXAMPLES": False,
                "DANLING_BUILD_TESTS": False,
                "DANLING_WITH_ARCHIVES": bool(self.options.archives),
                "DANLING_WITH_IMAGES": bool(self.options.images),
                "DANLING_WITH_TABLES": bool(self.options.tables),
                "Torch_DIR": os.path.join(str(self.options.torch_dir), "share", "cmake", "Torch"),
            }
        )
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package's own danlingConfig.cmake, which finds LibTorch too.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "danling")]
        self.cpp_info.libs = ["danling"]
