#!/bin/sh
# Runs the fuzz targets of a build that ./dev fuzz has made, side by side where there are cores.
#
# Usage: DANLING_BUILD_DIR=<directory> fuzz.sh [--seconds N] [--merge] [TARGET...]
#   --seconds N  how long in all (default 600)
#   --merge      instead of fuzzing, rewrite tests/fuzz/corpus: of all inputs found so far and the seeds, the fewest
#                that reach the same code
# What was found is kept in <directory>/corpus and used by the next run; an input that fails is in
# <directory>/artifacts, with the command that repeats it.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$DANLING_BUILD_DIR
seconds=600
merge=''
targets=''
while [ $# -gt 0 ]; do
  case $1 in
    --seconds)
      [ $# -gt 1 ] || { echo 'fuzz: expected a number of seconds after --seconds' >&2 && exit 2; }
      seconds=$2
      shift
      ;;
    --merge) merge=1 ;;
    -*) echo "fuzz: expected --seconds, --merge or targets, got $1" >&2 && exit 2 ;;
    *) targets="$targets $1" ;;
  esac
  shift
done
case $seconds in
  '' | *[!0-9]*) echo "fuzz: expected a number of seconds, got '$seconds'" >&2 && exit 2 ;;
esac
all=$(cd "$root/tests/fuzz/corpus" && echo *)
for target in $targets; do
  case " $all " in
    *" $target "*) ;;
    *) echo "fuzz: expected one of: $all; got $target" >&2 && exit 2 ;;
  esac
done
targets=${targets:-$all}
mkdir -p "$build/artifacts"

# The sanitizers' own limits: a leak is an error, so is memory beyond what any input may take.
common='-timeout=10 -rss_limit_mb=2048'

# fuzz_one TARGET SECONDS
fuzz_one() {
  program=$build/tests/fuzz/fuzz_$1
  committed=$root/tests/fuzz/corpus/$1
  mkdir -p "$build/corpus/$1"
  case $1 in
    pth) dictionary=$root/tests/fuzz/pickle.dict ;; # what its mutations change is the pickle inside
    *) dictionary=$root/tests/fuzz/$1.dict ;;
  esac
  [ ! -e "$dictionary" ] || set -- "$@" "-dict=$dictionary"
  name=$1 limit=$2
  shift 2
  log=$build/artifacts/$name.log
  # shellcheck disable=SC2086
  if "$program" $common -max_total_time="$limit" -print_final_stats=1 -artifact_prefix="$build/artifacts/$name-" "$@" \
    "$build/corpus/$name" "$committed" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
    covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    echo "fuzz: $name: ok, $runs inputs in $limit s, $covered edges reached"
    return 0
  fi
  grep -a -E '^(expected|==[0-9]+==ERROR|.*runtime error|[0-9]+ bytes of memory|ALARM|terminate|  what)' "$log" | head -n 5
  found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  echo "fuzz: $name: FAILED; the whole report: $log; repeat it with: $program ${found:-$log}"
  return 1
}

# merge_one TARGET
merge_one() {
  fresh=$build/merged/$1
  rm -rf "$fresh"
  mkdir -p "$fresh" "$build/corpus/$1" "$build/seeds/$1"
  # Edges alone, not how often each is taken: a few hundred inputs that run in a second.
  "$build/tests/fuzz/fuzz_$1" -set_cover_merge=1 -use_counters=0 -max_len=32768 "$fresh" "$root/tests/fuzz/corpus/$1" "$build/seeds/$1" \
    "$build/corpus/$1" >"$build/artifacts/$1.log" 2>&1
  rm -rf "$root/tests/fuzz/corpus/$1"
  cp -R "$fresh" "$root/tests/fuzz/corpus/$1"
  echo "fuzz: $1: $(find "$fresh" -type f | wc -l) inputs, $(cat "$fresh"/* | wc -c) bytes"
}

if [ -n "$merge" ]; then
  python3 "$root/tests/fuzz/seeds.py" "$build/seeds"
  for target in $targets; do merge_one "$target"; done
  exit
fi

# In rounds of as many targets as there are cores; each round gets its part of the time.
cores=$(nproc 2>/dev/null || echo 1)
count=$(echo "$targets" | wc -w)
rounds=$(((count + cores - 1) / cores))
each=$((seconds / rounds > 0 ? seconds / rounds : 1))
failed=''
pids=''
wait_all() {
  for pid in $pids; do wait "$pid" || failed=1; done
  pids=''
}
running=0
for target in $targets; do
  fuzz_one "$target" "$each" &
  pids="$pids $!"
  running=$((running + 1))
  [ $((running % cores)) -ne 0 ] || wait_all
done
wait_all
[ -z "$failed" ]
