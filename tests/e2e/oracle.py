#!/usr/bin/env python3
"""Compares `cleave solve` with CBC, a solver of integer programs (Debian's coinor-cbc), on random sharding-choice problems of middling
size with memory limits. Without cbc the test is skipped.

oracle.py --build BUILD [--problems N] [--first SEED] [unittest arguments]
"""
import json, random, shutil, subprocess, sys, unittest

import programs
from e2e import Case

PROBLEMS, FIRST = 300, 1
FORBIDDEN = 10**18


def drawn(seed):
    """A problem whose nodes follow each other in time, as layers do."""
    r = random.Random(seed)
    nodes = r.randint(8, 24)
    counts = [r.randint(1, 5) for _ in range(nodes)]
    costs = [[r.randint(0, 100) for _ in range(n)] for n in counts]
    intervals = [[t, t + r.randint(0, 5)] for t in range(nodes)]
    usages = [[r.randint(0, 40) for _ in range(n)] for n in counts]
    ends, tables = [], []
    for v in range(1, nodes):
        for u in {v - 1, max(0, v - r.randint(1, 6))}:
            if u < v and r.random() < 0.9:
                tie = r.random() < 0.1 and counts[u] == counts[v]
                ends.append([u, v])
                tables.append([(0 if i == j else FORBIDDEN) if tie else FORBIDDEN if r.random() < 0.05 else r.randint(0, 60)
                               for i in range(counts[u]) for j in range(counts[v])])
    limit = r.randint(40, 140) if r.random() < 0.9 else 10**6
    return {"name": f"drawn-{seed}", "nodes": {"intervals": intervals, "costs": costs, "usages": usages},
            "edges": {"nodes": ends, "costs": tables}, "usage_limit": limit}


def integer_program(problem):
    """The problem in the LP format. Variable x{v}_{i}: node v takes choice i. Variable y{e}_{i}_{j}: both ends' choices, which is whole
    if the ends' are."""
    costs, tables, ends = problem["nodes"]["costs"], problem["edges"]["costs"], problem["edges"]["nodes"]
    terms, rows, bounds, whole = [], [], [], []
    for v, own in enumerate(costs):
        whole += [f"x{v}_{i}" for i in range(len(own))]
        terms += [f"{c} x{v}_{i}" for i, c in enumerate(own) if c]
        rows.append(" + ".join(f"x{v}_{i}" for i in range(len(own))) + " = 1")
    for e, ((u, v), table) in enumerate(zip(ends, tables)):
        width = len(costs[v])
        for at, c in enumerate(table):
            name = f"y{e}_{at // width}_{at % width}"
            bounds.append(f"{name} = 0" if c >= FORBIDDEN else f"0 <= {name} <= 1")
            if 0 < c < FORBIDDEN:
                terms.append(f"{c} {name}")
        for i in range(len(costs[u])):
            rows.append(" + ".join(f"y{e}_{i}_{j}" for j in range(width)) + f" - x{u}_{i} = 0")
        for j in range(width):
            rows.append(" + ".join(f"y{e}_{i}_{j}" for i in range(len(costs[u]))) + f" - x{v}_{j} = 0")
    usages = problem["nodes"]["usages"]
    for t in range(max(hi for _, hi in problem["nodes"]["intervals"])):
        used = [f"{u} x{v}_{i}" for v, (lo, hi) in enumerate(problem["nodes"]["intervals"]) if lo <= t < hi for i, u in enumerate(usages[v]) if u]
        if used:
            rows.append(" + ".join(used) + f" <= {problem['usage_limit']}")
    lines = ["Minimize", " cost: " + " + ".join(terms or ["0 x0_0"]), "Subject To"] + [f" r{i}: {row}" for i, row in enumerate(rows)]
    return "\n".join(lines + ["Bounds"] + [f" {b}" for b in bounds] + ["Binaries", " " + "\n ".join(whole), "End", ""])


@unittest.skipUnless(shutil.which("cbc"), "cbc is not installed (scripts/setup)")
class Oracle(Case):
    def best(self, problem):
        """The least cost, by CBC; None if every assignment exceeds the memory or has a pair that costs FORBIDDEN."""
        program, answer = self.path("problem.lp"), self.path("answer.txt")
        with open(program, "w") as out:
            out.write(integer_program(problem))
        done = subprocess.run(["cbc", program, "ratioGap", "0", "allowableGap", "0", "solve", "solution", answer], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout[-500:])
        with open(answer) as said:
            head = said.readline()
        if "nfeasible" in head:
            return None
        self.assertIn("Optimal", head)
        return round(float(head.split()[-1]))

    def test_costs_are_the_least(self):
        feasible = 0
        for seed in range(FIRST, FIRST + PROBLEMS):
            problem = drawn(seed)
            file, out = self.path("problem.json"), self.path("solution.json")
            with open(file, "w") as f:
                json.dump({"problem": problem}, f)
            best = self.best(problem)
            if best is None:
                status, _, err = programs.run("cleave", "solve", file, "-o", out)
                if status == 0: # the format has no forbidden pairs, only large costs
                    with open(out) as f:
                        self.assertGreaterEqual(json.load(f)["cost"], FORBIDDEN, problem["name"])
                else:
                    self.assertEqual(status, 3, err)
                continue
            feasible += 1
            self.ok("cleave", "solve", file, "-o", out)
            with open(out) as f:
                found = json.load(f)
            self.assertEqual((found["cost"], found["lower_bound"], found["optimal"]), (best, best, True), problem["name"])
        self.assertGreater(feasible, PROBLEMS // 2)


if __name__ == "__main__":
    for name in ("PROBLEMS", "FIRST"):
        word = "--" + name.lower()
        if word in sys.argv:
            at = sys.argv.index(word)
            globals()[name] = int(sys.argv[at + 1])
            del sys.argv[at:at + 2]
    programs.main()
