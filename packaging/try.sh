#!/usr/bin/env bash
# Tries the packages: packaging/try.sh [STEP...], all steps without an argument. A step named by hand fails where it cannot
# run; without an argument it is skipped, and the last line says so. README.md says what each step needs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${DANLING_PACKAGE_BUILD:-$root/build/packages}
version=$(sed -n 's/^project(danling VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
skipped=()

say() { printf 'try: %s\n' "$*"; }
# cannot REASON: ends a step that cannot run here.
cannot() {
  if [ "$asked" = yes ]; then
    say "$step: $1" >&2
    exit 1
  fi
  skipped+=("$step ($1)")
}
# expect TEXT COMMAND...: the command's first line is TEXT.
expect() {
  local text=$1 got
  shift
  got=$("$@" | head -n 1)
  [ "$got" = "$text" ] || {
    say "$step: expected '$text' of '$*', got '$got'" >&2
    exit 1
  }
}

# Prints LibTorch's directory: Torch_DIR's, or the fetched one.
torch_root() {
  if [ -n "${Torch_DIR:-}" ]; then
    (cd "$Torch_DIR/../../.." && pwd)
  else
    python3 "$root/tools/fetch_libtorch.py" "${DANLING_TORCH_VERSION:-2.13.0}" "$root/.deps"
  fi
}

# The .tar.gz and the .deb, in $build; the archive unpacked and run.
step_cpack() {
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDANLING_BUILD_TESTS=OFF \
    -DDANLING_BUILD_EXAMPLES=OFF -DDANLING_BUILD_BENCH=OFF -DTorch_DIR="$torch/share/cmake/Torch" \
    -DDANLING_INSTALL_TORCH=/opt/libtorch
  cmake --build "$build" --target danling danling_command
  (cd "$build" && rm -f danling-*.tar.gz danling_*.deb && cpack)
  local unpacked
  unpacked=$(mktemp -d)
  tar -xzf "$build"/danling-"$version"-*.tar.gz -C "$unpacked"
  expect "danling $version" env LD_LIBRARY_PATH="$torch/lib" "$unpacked"/danling-*/bin/danling --version
  rm -r "$unpacked"
}

# The .deb on a Debian 12 of debootstrap's, first alone, then with what compiles a program.
step_debian() {
  [ "$(id -u)" -eq 0 ] || { cannot 'needs root, for chroot' && return; }
  command -v debootstrap >/dev/null || { cannot 'needs debootstrap' && return; }
  ls "$build"/danling_*.deb >/dev/null 2>&1 || { cannot "needs the package of the step cpack in $build" && return; }
  local system
  system=$(mktemp -d)
  debootstrap --variant=minbase bookworm "$system" "${DANLING_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >/dev/null
  cp /etc/resolv.conf "$system/etc/"
  [ ! -d /etc/apt/apt.conf.d ] || cp /etc/apt/apt.conf.d/* "$system/etc/apt/apt.conf.d/"
  mkdir -p "$system/try" "$system/opt/libtorch"
  cp "$build"/danling_*.deb "$root/tests/golden/data/safetensors_tied.safetensors" "$root/tests/package/consumer/main.cpp" \
    "$system/try/"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(try CXX)' 'find_package(danling REQUIRED)' \
    'danling_add_runner(consumer main.cpp)' >"$system/try/CMakeLists.txt"
  cat >"$system/try/run.sh" <<'EOF'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends /try/danling_*.deb
danling --version
danling ckpt verify /try/safetensors_tied.safetensors
apt-get -q install -y --no-install-recommends cmake g++ make pkg-config
cmake -S /try -B /try/build
cmake --build /try/build
/try/build/consumer
g++ -std=c++20 /try/main.cpp $(pkg-config --cflags --libs danling) -o /try/by_pkg_config
/try/by_pkg_config
EOF
  # The mounts end with the namespace.
  # shellcheck disable=SC2016 # the inner shell expands
  unshare -m sh -c 'mount --bind /proc "$1/proc" && mount --bind "$2" "$1/opt/libtorch" && exec chroot "$1" sh /try/run.sh' \
    sh "$system" "$torch"
  rm -rf "$system"
}

step_conan() {
  command -v conan >/dev/null || { cannot 'needs conan 2' && return; }
  conan create "$root/packaging/conan" --build=missing -s compiler.cppstd=gnu20 -o "danling/*:torch_dir=$torch" \
    -o "danling/*:system_libraries=${DANLING_SYSTEM_LIBRARIES:-False}"
}

step_vcpkg() {
  [ -x "${VCPKG_ROOT:-}/vcpkg" ] || { cannot 'needs VCPKG_ROOT, the directory of a vcpkg' && return; }
  Torch_DIR="$torch/share/cmake/Torch" VCPKG_KEEP_ENV_VARS=Torch_DIR "$VCPKG_ROOT/vcpkg" install danling \
    --overlay-ports="$root/packaging/vcpkg"
}

step_docker() {
  docker info >/dev/null 2>&1 || { cannot 'needs a running docker' && return; }
  docker build -f "$root/packaging/Dockerfile" -t danling "$root"
  expect "danling $version" docker run --rm danling danling --version
}

asked=yes
if [ $# -eq 0 ]; then
  asked=no
  set -- cpack debian conan vcpkg docker
fi
torch=$(torch_root)
for step; do
  case $step in
    cpack | debian | conan | vcpkg | docker) ;;
    *) echo "try: expected cpack, debian, conan, vcpkg or docker, got $step" >&2 && exit 2 ;;
  esac
  say "$step"
  "step_$step"
done
[ ${#skipped[@]} -eq 0 ] || say "skipped: ${skipped[*]}"
