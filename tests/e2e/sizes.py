#!/usr/bin/env python3
"""Plans whose counts of elements, bytes and operations exceed 32 bits. Standard library only.

sizes.py --build BUILD [unittest arguments]
"""
import programs
from e2e import Case
from programs import run

SAMPLES = ("mlp", "convnet", "gpt", "resnet", "vit", "llama", "lstm")


class Sizes(Case):
    def plans(self, backend, powers):
        """Every sample with these batches: a plan that the checker accepts, or a message, but no endless loop."""
        plan, planned = self.path("large.plan"), 0
        for program in SAMPLES:
            for power in powers:
                status, _, err = run(program, "plan", "--no-code", "--backend", backend, "--batch", 2**power, "-o", plan, timeout=60)
                if status == 0:
                    self.ok("cleave", "verify", plan)
                    planned += 1
                else:
                    self.assertEqual(status, 2, f"{program} {power}: {err}")
                    self.assertIn("more than 2^40 elements", err)
        self.assertGreater(planned, len(SAMPLES) * len(powers) // 2)

    def test_samples_on_gpus(self):
        self.plans("cuda", (20, 21, 22, 24, 26, 30))

    def test_samples_on_processors(self):
        self.plans("cpu", (22, 26, 30))


if __name__ == "__main__":
    programs.main()
