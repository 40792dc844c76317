#!/usr/bin/env python3
"""Tests of trained models (predictions, samples, profiles), and of the files of a process. Standard library only.

predict.py --build BUILD [unittest arguments]
"""
import array, ast, gzip, json, os, shutil, struct

import programs
from e2e import Case
from programs import DIGITS, run

GPT = ["--layers", 2, "--width", 32, "--heads", 2, "--context", 16]
TEXT = "the quick brown fox jumps over the lazy dogs\n" * 60  # training windows begin at every position of the sentence


def read_npy(file):
    """Shape and values of a .npy file of f32."""
    with open(file, "rb") as f:
        data = f.read()
    assert data[:8] == b"\x93NUMPY\x01\x00" and (10 + struct.unpack("<H", data[8:10])[0]) % 64 == 0
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:begin].decode())
    assert header["descr"] == "<f4" and not header["fortran_order"]
    return header["shape"], array.array("f", data[begin:])


def labels(folder):
    with gzip.open(os.path.join(folder, "t10k-labels-idx1-ubyte.gz")) as f:
        return f.read()[8:]


class Predict(Case):
    def trained(self, program, *options, steps=30):
        checkpoint = self.path(program + ".ck")
        self.ok(program, "train", *options, "--steps", steps, "--checkpoint", checkpoint, "--quiet")
        return checkpoint

    def close(self, one, many):
        self.assertEqual(len(one), len(many))
        scale = max(map(abs, one))
        self.assertLess(max(abs(a - b) for a, b in zip(one, many)), 1e-5 * scale)

    def predictions(self, program, checkpoint, *options, ranks=0):
        file = self.path("p.npy")
        self.ok(program, "predict", "--checkpoint", checkpoint, *options, "-o", file, ranks=ranks)
        return read_npy(file)

    def test_every_split_and_batch_predicts_the_same(self):
        checkpoint = self.trained("mlp", "--data", DIGITS)
        shape, one = self.predictions("mlp", checkpoint, "--data", DIGITS)
        truth = labels(DIGITS)
        self.assertEqual(shape, (len(truth), 10))
        right = sum(max(range(10), key=lambda k: one[10 * i + k]) == label for i, label in enumerate(truth))
        said = json.loads(self.ok("mlp", "eval", "--checkpoint", checkpoint, "--data", DIGITS, "--json"))
        self.assertEqual(right, round(said["accuracy"] * said["samples"]))  # each sample once, in order
        for options in (["--batch", 7], ["--mesh", "dp=2,tp=2,pp=2"], ["--mesh", "tp=3", "--batch", 33], ["--mesh", "dp=3"]):
            self.close(one, self.predictions("mlp", checkpoint, "--data", DIGITS, *options)[1])
        self.close(one, self.predictions("mlp", checkpoint, "--data", DIGITS, "--mesh", "dp=1,pp=2", ranks=2)[1])

    def test_new_pictures_need_no_labels(self):
        checkpoint = self.trained("mlp", "--data", DIGITS, steps=2)
        images = self.path("images")
        os.mkdir(images)
        shutil.copy(os.path.join(DIGITS, "t10k-images-idx3-ubyte.gz"), images)
        self.assertEqual(self.predictions("mlp", checkpoint, "--data", images)[1],
                         self.predictions("mlp", checkpoint, "--data", DIGITS)[1])
        self.refused("mlp", "eval", "--checkpoint", checkpoint, "--data", images, word="t10k-labels")

    def test_statistics_and_half_precision(self):
        checkpoint = self.trained("convnet", "--data", DIGITS, "--batch", 50, "--precision", "bf16", steps=10)
        _, one = self.predictions("convnet", checkpoint, "--data", DIGITS)
        truth = labels(DIGITS)
        right = sum(max(range(10), key=lambda k: one[10 * i + k]) == label for i, label in enumerate(truth))
        said = json.loads(self.ok("convnet", "eval", "--checkpoint", checkpoint, "--data", DIGITS, "--json"))
        self.assertAlmostEqual(right / len(truth), said["accuracy"], delta=2e-3)

    def test_mistakes(self):
        checkpoint = self.trained("mlp", "--data", DIGITS, steps=1)
        predict = ["predict", "--checkpoint", checkpoint, "--data", DIGITS]
        self.refused("mlp", *predict, word="--output")
        self.refused("mlp", *predict, "-o", self.path("none/p.npy"), word="none/p.npy")
        self.refused("convnet", *predict, "-o", self.path("p.npy"), word="the checkpoint is of model mlp")
        self.refused("mlp", "predict", "--checkpoint", self.path("none"), "--data", DIGITS, "-o", self.path("p.npy"), word="none")
        self.assertFalse(os.path.exists(self.path("p.npy")))

    def test_sample(self):
        text = self.path("fox.txt")
        with open(text, "w") as out:
            out.write(TEXT)
        checkpoint = self.trained("gpt", "--data", text, *GPT, "--lr", 0.01, steps=200)
        sample = ["sample", "--checkpoint", checkpoint, "--prompt", "the quick", "--tokens"]
        sure = self.ok("gpt", *sample, 70, "--temperature", 0)
        self.assertEqual(len(sure), len("the quick") + 70 + 1)
        self.assertTrue(sure.startswith("the quick brown fox jumps over the lazy dogs\nthe quick"), sure)  # beyond its context
        drawn = self.ok("gpt", *sample, 40, "--seed", 3)
        self.assertEqual(drawn, self.ok("gpt", *sample, 40, "--seed", 3, "--mesh", "tp=2"))
        self.assertNotEqual(drawn, self.ok("gpt", *sample, 40, "--seed", 4, "--temperature", 3))
        self.assertEqual(self.ok("gpt", *sample[:3], "--prompt", "", "--tokens", 5, "--temperature", 0), "the q\n")
        self.refused("gpt", "sample", "--checkpoint", checkpoint, "--prompt", "é", word="--prompt")
        self.refused("gpt", *sample, 5, "--temperature", -1, word="--temperature")
        self.refused("gpt", "train", "--data", text, "--prompt", "x", word="--prompt")


class Runs(Case):
    def test_profiles_and_traces(self):
        checkpoint, trace = self.path("ck"), self.path("trace.json")
        train = ["train", "--data", DIGITS, "--mesh", "dp=2", "--steps", 5, "--checkpoint", checkpoint, "--quiet"]
        evaluate = ["eval", "--data", DIGITS, "--checkpoint", checkpoint]
        for command, segment in ((train, "forward"), (evaluate, "eval")):
            status, _, err = run("mlp", *command, "--profile", "--trace", trace)
            self.assertEqual(status, 0, err)
            self.assertIn("Matmul", err)
            with open(trace) as f:
                events = json.load(f)["traceEvents"]
            self.assertIn(segment, {e.get("cat") for e in events})
            os.remove(trace)

    def test_an_evaluation_reads_its_own_files_alone(self):
        checkpoint, only = self.path("ck"), self.path("only")
        self.ok("mlp", "train", "--data", DIGITS, "--steps", 3, "--checkpoint", checkpoint, "--quiet")
        os.mkdir(only)
        for name in os.listdir(DIGITS):
            if name.startswith("t10k"):
                shutil.copy(os.path.join(DIGITS, name), only)
        evaluate = ["eval", "--checkpoint", checkpoint, "--json", "--data"]
        self.assertEqual(self.ok("mlp", *evaluate, only), self.ok("mlp", *evaluate, DIGITS))
        self.refused("mlp", "train", "--data", only, word="train-images")


if __name__ == "__main__":
    programs.main()
