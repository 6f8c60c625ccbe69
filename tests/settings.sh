#!/bin/sh
# Runs test programs as on other machines: instruction sets, threads, cores, limits, locales, users, an order by chance.
#
#   tests/settings.sh BUILD [PROGRAM...]     all test programs of a build (build/release), or test_runner, test_data ...
set -u

build=$(cd "${1:?usage: tests/settings.sh BUILD [PROGRAM...]}/tests" && pwd) || exit
shift
programs=$*
[ -n "$programs" ] || programs=$(cd "$build" && ls -d test_* reliability/test_* docs/test_*)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -m 1777 "$scratch/tmp" "$scratch/with spaces"
chmod 755 "$scratch"
export OMP_NUM_THREADS=1 TMPDIR="$scratch/tmp"
failed=''

# under NAME PREFIX...: each program behind the words of the prefix.
under() {
  name=$1
  shift
  for program in $programs; do
    arguments=''
    case $name:$program in
      'order by chance:'docs/*) continue ;;
      'order by chance:'*) arguments='--order rand --rng-seed time' ;;
    esac
    # shellcheck disable=SC2086
    if ! "$@" "$build/$program" $arguments </dev/null >"$scratch/log" 2>&1; then
      cat "$scratch/log"
      echo "=== $program failed: $name"
      failed="$failed
  $program: $name"
    fi
  done
  echo "=== $name: done"
}

under 'plain ATen' env ATEN_CPU_CAPABILITY=default
under 'ATen with AVX2' env ATEN_CPU_CAPABILITY=avx2
under 'MKL with SSE4.2' env MKL_ENABLE_INSTRUCTIONS=SSE4_2
under 'MKL with AVX2' env MKL_ENABLE_INSTRUCTIONS=AVX2
under 'oneDNN with SSE4.1' env ONEDNN_MAX_CPU_ISA=SSE41
under 'libm without FMA' env GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F
under 'two threads' env OMP_NUM_THREADS=2
under 'four threads' env OMP_NUM_THREADS=4
under 'one core' taskset -c 0
under '64 open files' sh -c 'ulimit -n 64 && exec "$@"' sh
under 'a stack of 1 MB' sh -c 'ulimit -s 1024 && exec "$@"' sh
under 'umask 077' sh -c 'umask 077 && exec "$@"' sh
under 'German' env LC_ALL=de_DE.UTF-8
under 'Turkish' env LC_ALL=tr_TR.UTF-8
under 'C' env -u LC_ALL LANG=C
under 'New Zealand' env TZ=Pacific/Auckland
under 'a folder with spaces' env TMPDIR="$scratch/with spaces"
under 'no home' env -u HOME -u USER -u LOGNAME
under 'an empty environment' env -i PATH="$PATH"
[ "$(id -u)" -ne 0 ] || under 'another user' setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent
under 'order by chance' env

[ -z "$failed" ] || { printf 'failed:%s\n' "$failed"; exit 1; }
