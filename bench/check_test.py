#!/usr/bin/env python3
"""Shows that check.py fails for worse ratios only, and that table.py and results.py write what it reads."""

import contextlib
import copy
import io
import json
import tempfile
import unittest
from pathlib import Path

import check
import results
import table

results.commit = lambda: "abc"  # without a git process for each test


def written(ratios, quick=False, cpu="one", values=()):
    """Results as a file holds them; ratios by name: interval, control, better."""
    made = results.Results("try", quick)
    for name, (interval, control, better) in ratios.items():
        made.add_ratio(name, interval, control, better)
    for name, value in values:
        made.add_value(name, value, "us")
    with tempfile.TemporaryDirectory() as folder:
        made.write(Path(folder) / "try.json")
        out = json.loads((Path(folder) / "try.json").read_text())
    out["machine"]["cpu"] = cpu
    return out


def of(interval, control=(1.0, 0.99, 1.01), better="higher", **more):
    return written({"a to b": (interval, control, better)}, **more)


def outcome(old, *runs):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        passed = check.check(old, runs)
    return passed, printed.getvalue()


OLD = of((2.0, 1.9, 2.1))


class Comparison(unittest.TestCase):
    def test_a_better_ratio_passes(self):
        self.assertTrue(outcome(OLD, of((3.0, 2.9, 3.1)))[0])
        self.assertTrue(outcome(of((2.0, 1.9, 2.1), better="lower"), of((1.0, 0.9, 1.1), better="lower"))[0])

    def test_a_ratio_within_the_noise_passes(self):
        self.assertTrue(outcome(OLD, of((1.8, 1.7, 1.9)))[0], "the intervals touch")
        self.assertTrue(outcome(OLD, of((1.7, 1.6, 1.8), control=(1.0, 0.8, 1.01)))[0], "new control: 20 %")
        self.assertTrue(outcome(of((2.0, 1.9, 2.1), control=(1.0, 0.99, 1.2)), of((1.7, 1.6, 1.8)))[0], "old control")

    def test_a_worse_ratio_fails_with_both_values_and_intervals(self):
        passed, printed = outcome(OLD, of((1.7, 1.6, 1.8)))
        self.assertFalse(passed)
        self.assertIn(
            "try: error: a to b: 1.7 [1.6, 1.8], control [0.99, 1.01], is worse than the committed 2 [1.9, 2.1], "
            "control [0.99, 1.01], by more than the noise of 1 %",
            printed,
        )

    def test_a_ratio_whose_lower_values_are_better_fails_if_it_rises(self):
        old = of((1.0, 0.99, 1.01), better="lower")
        self.assertFalse(outcome(old, of((1.1, 1.08, 1.12), better="lower"))[0])
        self.assertTrue(outcome(old, of((0.9, 0.88, 0.92), better="lower"))[0])
        self.assertIn("expected lower to be better", outcome(old, of((1.0, 0.99, 1.01)))[1])

    def test_a_time_without_a_control_has_the_noise_of_the_widest_control_of_its_run(self):
        def run(value, *deviations):
            ratios = {"a to b": ((value, value - 0.01, value + 0.01), None, "higher")}
            for i, deviation in enumerate(deviations):
                ratios[f"c to {i}"] = ((1.0, 1.0, 1.0), (1.0, 1 - deviation, 1.0), "higher")
            return written(ratios)

        passed, printed = outcome(run(2.0, 0.01, 0.02), run(1.9, 0.01, 0.03))
        self.assertFalse(passed, "the difference is 5 %")
        self.assertIn(
            "try: error: a to b: 1.9 [1.89, 1.91], no control, is worse than the committed 2 [1.99, 2.01], no control, by "
            "more than the noise of 3 %",
            printed,
        )
        self.assertTrue(outcome(run(2.0, 0.01, 0.08), run(1.9, 0.01, 0.02))[0], "8 % in the committed run")
        self.assertTrue(outcome(run(2.0, 0.01, 0.02), run(1.9, 0.08, 0.02))[0], "8 % in the new run")

    def test_a_time_of_a_run_without_controls_has_the_noise_of_its_interval(self):
        def run(value, low, high):
            return of((value, low, high), control=None)

        self.assertTrue(outcome(run(2.0, 1.95, 2.2), run(1.9, 1.85, 1.94))[0], "5 % worse, up to 10 % in the committed run")
        self.assertFalse(outcome(run(2.0, 1.95, 2.05), run(1.85, 1.8, 1.9))[0], "7.5 % worse, noise 2.7 %")

    def test_a_count_may_differ_by_a_hundredth(self):
        def count(value):
            return of((value, value, value), control=None, better="lower")

        self.assertTrue(outcome(count(2.0), count(2.0))[0])
        self.assertTrue(outcome(count(2.0), count(2.019))[0])
        self.assertFalse(outcome(count(2.0), count(2.03))[0])

    def test_no_committed_ratio_is_judged_without_noise(self):
        for path in (Path(check.__file__).parent / "results").glob("*.json"):
            committed = json.loads(path.read_text())
            for ratio in committed["ratios"]:
                if ratio["control"] is None:
                    self.assertGreaterEqual(check.noise(ratio, committed), 0.004, ratio["name"])

    def test_a_missing_ratio_fails_and_a_new_one_passes(self):
        other = written({"a to c": ((2.0, 1.9, 2.1), None, "higher")})
        passed, printed = outcome(OLD, other)
        self.assertFalse(passed)
        self.assertIn("a to b: expected a ratio as in the committed results, 2 [1.9, 2.1], got none", printed)
        more = written({name: ((2.0, 1.9, 2.1), (1.0, 0.99, 1.01), "higher") for name in ("a to b", "a to c")})
        self.assertTrue(outcome(OLD, more)[0])

    def test_only_a_ratio_that_is_worse_in_all_runs_fails(self):
        worse, equal = of((1.7, 1.6, 1.8)), of((2.0, 1.9, 2.1))
        self.assertTrue(outcome(OLD, worse, equal)[0])
        self.assertTrue(outcome(OLD, equal, worse)[0])
        self.assertFalse(outcome(OLD, worse, worse)[0])

    def test_another_machine_is_a_warning_and_its_ratios_are_compared(self):
        passed, printed = outcome(OLD, of((2.0, 1.9, 2.1), cpu="two"))
        self.assertTrue(passed)
        self.assertIn("warning: another machine (two, ", printed)
        self.assertIn("absolute values are not compared, ratios are", printed)
        self.assertFalse(outcome(OLD, of((1.7, 1.6, 1.8), cpu="two"))[0])

    def test_absolute_values_are_noted_on_the_same_machine_and_never_fail(self):
        old, new = (of((2.0, 1.9, 2.1), values=[("step", value)]) for value in (10, 12))
        passed, printed = outcome(old, new)
        self.assertTrue(passed)
        self.assertIn("note: step: 12 us, committed 10", printed)
        new["machine"]["cpu"] = "two"
        self.assertNotIn("note:", outcome(old, new)[1])

    def test_results_of_quick_runs_are_refused(self):
        quick = of((2.0, 1.9, 2.1), quick=True)
        self.assertIn("expected new results of a whole run, got those of --quick", outcome(OLD, quick)[1])
        self.assertFalse(outcome(OLD, quick)[0])
        self.assertFalse(outcome(quick, OLD)[0])


class Keeping(unittest.TestCase):
    def kept(self, new, old=None):
        with tempfile.TemporaryDirectory() as folder:
            committed, path = Path(folder) / "try.json", Path(folder) / "new.json"
            path.write_text(json.dumps(new))
            if old is not None:
                committed.write_text(json.dumps(old))
            why = check.keep(committed, path)
            self.assertEqual(committed.exists() and json.loads(committed.read_text()) == new, not why)
            return why

    def test_whole_results_replace_the_committed_ones(self):
        self.assertEqual(self.kept(OLD), "")
        self.assertEqual(self.kept(of((1.0, 0.9, 1.1)), OLD), "")

    def test_quick_results_and_those_without_a_ratio_are_not_kept(self):
        self.assertIn("got those of --quick", self.kept(of((2.0, 1.9, 2.1), quick=True)))
        self.assertIn("they lack ratios, such as a to b", self.kept(written({"c": ((1.0, 1.0, 1.0), None, "lower")}), OLD))


class Written(unittest.TestCase):
    def test_the_interval_of_a_median_is_that_of_order_statistics(self):
        # n = 40: ranks 14 and 27 of a binomial table, 95 %.
        self.assertEqual(results.median_interval(range(1, 41)), (20.5, 14, 27))
        self.assertEqual(results.median_interval([3, 1, 2]), (2, 1, 3))

    def test_what_cannot_be_compared_is_refused(self):
        with self.assertRaisesRegex(ValueError, "expected a finite number of a, got nan"):
            written({"a": ((float("nan"), 1.0, 1.0), None, "lower")})
        with self.assertRaisesRegex(ValueError, "expected one ratio with the name a, got two"):
            twice = results.Results("try")
            twice.add_ratio("a", (1, 1, 1))
            twice.add_ratio("a", (1, 1, 1))
        with self.assertRaisesRegex(ValueError, "expected results of the benchmark try, got none"):
            written({})
        with self.assertRaisesRegex(ValueError, "expected differences of loss of at most 0.1, got 0.2"):
            results.Results("try").add_check("loss", 1.0, 2, apart=0.2, tolerance=0.1)


class Table(unittest.TestCase):
    def test_it_has_a_row_for_each_headline_ratio_and_replaces_itself(self):
        more = copy.deepcopy(OLD)
        more["date"] = "2026-01-02"
        more["ratios"].append({**more["ratios"][0], "name": "a to c", "headline": False})
        page = f"before\n{table.BEGIN}old\n{table.END}after\n"
        new = table.with_table(page, [more])
        row = "| `./dev bench try` | a to b | 2.00 [1.90, 2.10] | higher | 1.000 [0.990, 1.010] | 2026-01-02 |"
        self.assertEqual([line for line in new.splitlines() if "a to" in line], [row])
        self.assertTrue(new.startswith("before\n") and new.endswith("after\n"))
        self.assertEqual(table.with_table(new, [more]), new)

    def test_it_has_the_losses_that_contestants_share(self):
        made = copy.deepcopy(OLD)
        for name in ("loss after 16 steps", "sums of images"):
            made["checks"].append({"name": name, "value": 2.30251, "contestants": 3, "apart": 1e-6, "tolerance": 1e-4})
        row = "| `./dev bench try` | loss after 16 steps | 2.303 | 3 | 1e-06 |"
        self.assertEqual([line for line in table.table([made]).splitlines() if "2.30" in line], [row])

    def test_the_page_has_the_table_of_the_committed_results(self):
        self.assertEqual(table.main(["--check"]), 0)


if __name__ == "__main__":
    unittest.main()
