#!/bin/sh
# Runs all checks that need no build: rules of the project, links, the headers' comments, format, shell scripts,
# clang-tidy. ./dev lint calls it, installs the tools and passes the build directory with compile_commands.json.
#
# Usage: DANLING_BUILD_DIR=<directory> DANLING_CLANG_FORMAT=<program> lint.sh [--all | --fix]
#   --all  run clang-tidy on every source; by default only on sources without LibTorch, on those of distributed and on
#          those that differ from the main branch
#   --fix  format the sources, and check nothing
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
mode=${1:-}
case $mode in
  '' | --all | --fix) ;;
  *) echo "lint: expected --all, --fix or nothing, got $mode" >&2 && exit 2 ;;
esac
failed=''

# check NAME COMMAND...
check() {
  name=$1
  shift
  if "$@"; then echo "lint: $name: ok"; else failed="$failed $name"; fi
}

sources() { git ls-files --cached --others --exclude-standard -- '*.cpp' '*.hpp'; }

if [ "$mode" = --fix ]; then
  sources | xargs "$DANLING_CLANG_FORMAT" -i
  exit
fi

format() {
  # xargs fails if one of the shells fails.
  # shellcheck disable=SC2016 # the inner shell expands
  sources | xargs -P "${DANLING_JOBS:-1}" -n 20 sh -c 'status=0
    for file; do
      "$DANLING_CLANG_FORMAT" "$file" | cmp -s - "$file" || { echo "$file: not in the format of the project"; status=1; }
    done
    exit $status' sh || {
    echo 'lint: ./dev lint --fix rewrites the sources'
    return 1
  }
}

# Prints the sources of the library for clang-tidy.
tidy_sources() {
  if [ "$mode" = --all ]; then
    find src -name '*.cpp'
    return
  fi
  for module in core formats config workspace telemetry distributed; do
    [ ! -d "src/$module" ] || find "src/$module" -name '*.cpp'
  done
  for base in origin/main main; do
    base=$(git merge-base HEAD "$base" 2>/dev/null) || continue
    { git diff --name-only --diff-filter=d "$base" && git ls-files --others --exclude-standard; } | grep '^src/.*\.cpp$' || true
    break
  done
}

# Joins sources to units, since headers take most of the time (those of LibTorch half a minute).
tidy() {
  units=$DANLING_BUILD_DIR/tidy
  tidy_sources | sort -u | python3 tools/tidy_units.py "$DANLING_BUILD_DIR" "$units" |
    xargs -P "${DANLING_JOBS:-1}" -n 1 clang-tidy --quiet -p "$units" 2>/dev/null
}

check 'rules, self-test' sh -c 'python3 tools/check_sources_test.py 2>&1 | tail -n 1 | grep -q "^OK"'
check rules python3 tools/check_sources.py
check 'links, self-test' sh -c 'python3 tools/check_links_test.py 2>&1 | tail -n 1 | grep -q "^OK"'
check links python3 tools/check_links.py
check reference ./dev docs
check shell shellcheck dev .ci/run bench/peers/*.sh packaging/*.sh tools/*.sh tests/*.sh
check format format
check clang-tidy tidy
[ -z "$failed" ] || {
  echo "lint: failed:$failed"
  exit 1
}
