#!/usr/bin/env python3
"""Tests of data sets of pictures: folders, tars and record files, what a model is given of them, damaged files, classes, resuming.
Standard library only.

pictures.py --build BUILD [unittest arguments]
"""
import io, json, os, shutil, tarfile, time

import programs
from e2e import Case
from predict import read_npy
from programs import ROOT, run

GOLDENS = os.path.join(ROOT, "tests", "parity", "goldens", "pictures")
CLASSES = ["ant", "bee", "cow"]
FILES = ["plain.png", "plain.jpg", "grey.jpg", "cmyk.jpg", "palette.png", "progressive.jpg"]
MODEL = ["--depth", 18, "--image", 16, "--channels", 3, "--classes", 3]
TRAIN = [*MODEL, "--batch", 6, "--seed", 3, "--threads", 1]


class Pictures(Case):
    def setUp(self):
        super().setUp()
        self.use_cache(self.path("cache"))  # indices of tars

    def pictures(self, name="pictures"):
        """train: 6 pictures a class, val: 3."""
        at = self.path(name)
        for split, count in (("train", 6), ("val", 3)):
            for label in CLASSES:
                os.makedirs(os.path.join(at, split, label))
                for file in FILES[:count]:
                    shutil.copy(os.path.join(GOLDENS, file), os.path.join(at, split, label, file))
        return at

    def tars(self, folder):
        """The same pictures in two tars a split."""
        at = self.path("tars")
        for split in ("train", "val"):
            os.makedirs(os.path.join(at, split))
            names = [(k, file) for k, label in enumerate(CLASSES) for file in sorted(os.listdir(os.path.join(folder, split, label)))]
            for shard, part in enumerate((names[::2], names[1::2])):
                with tarfile.open(os.path.join(at, split, f"{shard}.tar"), "w") as out:
                    for k, file in part:
                        with open(os.path.join(folder, split, CLASSES[k], file), "rb") as f:
                            data = f.read()
                        key = f"{CLASSES[k]}/{file.replace('.', '-')}"
                        for suffix, content in (("jpg", data), ("cls", str(k).encode())):
                            member = tarfile.TarInfo(f"{key}.{suffix}")
                            member.size = len(content)
                            out.addfile(member, io.BytesIO(content))
        return at

    def damage(self, folder):
        """Three files of the training split, next to each other in its order; returns their names."""
        bad = [os.path.join(folder, "train", *parts) for parts in (("ant", "progressive.jpg"), ("bee", "cmyk.jpg"), ("cow", "plain.jpg"))]
        for file in bad:
            with open(file, "r+b") as f:
                f.truncate(os.path.getsize(file) // 2)
        return bad

    def test_what_a_model_is_given(self):
        folder = self.pictures()
        whole, part = self.path("whole.npy"), self.path("part.npy")
        said = self.ok("resnet", "data", *MODEL, "--data", folder, "--split", "eval", "--index", 4, "-o", whole)
        self.assertIn("val/bee/plain.jpg", said)
        self.assertIn("1 (bee)", said)
        shape, values = read_npy(whole)
        self.assertEqual(shape, (3, 16, 16))
        self.ok("resnet", "data", *MODEL, "--data", folder, "--split", "eval", "--file", os.path.join(GOLDENS, "plain.jpg"), "-o", part)
        self.assertEqual(read_npy(part)[1], values)
        tars = self.tars(folder)
        found = [json.loads(self.ok("resnet", "data", *MODEL, "--data", tars, "--split", "eval", "--index", i, "--json", "-o", part))
                 for i in range(9)]
        self.assertEqual(sorted(f["fields"][1]["least"] for f in found), [0, 0, 0, 1, 1, 1, 2, 2, 2])
        self.assertTrue(all("tar: " in f["file"] for f in found))
        # A training sample is another one in another training, and the same in the same.
        train = [self.ok("resnet", "data", *MODEL, "--data", folder, "--index", 2, "--seed", s, "-o", self.path(f"{k}.png"))
                 for k, s in enumerate((1, 1, 2))]
        pngs = []
        for k in range(3):
            with open(self.path(f"{k}.png"), "rb") as f:
                pngs.append(f.read())
        self.assertTrue(pngs[0].startswith(b"\x89PNG") and pngs[0] == pngs[1] != pngs[2])
        self.assertEqual(train[0].splitlines()[:-1], train[1].splitlines()[:-1])
        self.refused("resnet", "data", *MODEL, "--data", folder, "--split", "eval", "--index", 9, word="samples 0 to 8")
        self.refused("resnet", "data", *MODEL, "--data", folder, "-o", self.path("x.txt"), word="FILE.npy or FILE.png")
        self.refused("mlp", "data", "--data", programs.DIGITS, "--file", whole, word="only a data set of pictures")
        self.assertIn("label      i32 []  ", self.ok("mlp", "data", "--data", programs.DIGITS, "-o", self.path("digit.png")))

    def test_what_a_folder_holds(self):
        folder = self.pictures()
        text = self.ok("cleave", "data", folder)
        self.assertIn("3 classes, 18 training and 9 evaluation pictures", text)
        self.assertIn("no file is damaged", text)
        bad = self.damage(folder)
        code, out, err = run("cleave", "data", folder)
        self.assertEqual((code, err), (3, f"error: {folder}: 3 of 27 pictures cannot be used\n"))
        self.assertIn("3 damaged files:", out)
        found = json.loads(self.ok("cleave", "data", folder, "--json"))
        self.assertEqual([found[k] for k in ("kind", "classes", "train", "val", "bad")], ["folder", CLASSES, 18, 9, 3])
        self.assertEqual([f["file"] for f in found["files"]], bad)
        self.assertTrue(all("ends before" in f["problem"] for f in found["files"]), found["files"])
        self.assertEqual(found["sizes"]["median"], [37, 23])
        tars = json.loads(self.ok("cleave", "data", self.tars(folder), "--json"))
        self.assertEqual([tars[k] for k in ("kind", "classes", "train", "bad")], ["tars", ["0", "1", "2"], 18, 3])

    def test_what_cannot_be_read(self):
        folder, out = self.pictures(), self.path("ck")
        train = ["resnet", "train", *TRAIN, "--checkpoint", out, "--data"]
        self.refused("resnet", "train", *MODEL[:-1], 2, "--batch", 6, "--data", folder, word="has 3 classes, the model has 2")
        os.makedirs(os.path.join(folder, "train", "dog"))
        self.refused(*train, folder, word="dog: a class without pictures")
        os.rename(os.path.join(folder, "train", "dog"), os.path.join(folder, "train", ".dog"))
        os.rename(os.path.join(folder, "val", "cow"), os.path.join(folder, "val", "yak"))
        self.refused(*train, folder, word="the class yak")
        self.refused("cleave", "data", folder, word="the class yak")
        os.rename(os.path.join(folder, "val", "yak"), os.path.join(folder, "val", "cow"))
        os.symlink("..", os.path.join(folder, "train", "ant", "loop"))
        self.refused(*train, folder, word="symbolic links lead in a circle")
        os.remove(os.path.join(folder, "train", "ant", "loop"))
        shutil.rmtree(os.path.join(folder, "val"))
        self.refused(*train, folder, word="val: no such folder")
        tar = os.path.join(folder, "train", "0.tar")
        with tarfile.open(tar, "w") as t:
            member = tarfile.TarInfo("../x.jpg")
            t.addfile(member, io.BytesIO(b""))
        self.refused(*train, folder, word="lead out of the tar")
        with open(os.path.join(GOLDENS, "plain.rec"), "rb") as f, open(os.path.join(folder, "train", "0.rec"), "wb") as g:
            os.remove(tar)
            g.write(f.read()[:-4])
        self.refused(*train, folder, word="reach beyond the file's")
        self.assertFalse(os.path.exists(out))

    def test_a_tar_that_changes_while_it_is_trained_on(self):
        tars = self.tars(self.pictures())
        changed, metrics = os.path.join(tars, "train", "0.tar"), self.path("m.jsonl")
        ranks = programs.start_ranks("resnet", "train", *TRAIN, "--data", tars, "--epochs", 10000, "--quiet", "--metrics", metrics, ranks=1)
        until = time.monotonic() + 60
        while len(programs.read_losses(metrics)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        with open(changed, "rb") as f, open(changed + ".new", "wb") as g:
            g.write(f.read())
        os.rename(changed + ".new", changed)
        (status, err), = programs.end_ranks(ranks)
        self.assertEqual(status, 3, err)
        self.assertIn("0.tar: was replaced by another file since it was listed", err)

    def test_damaged_files_stop_or_are_skipped(self):
        folder = self.pictures()
        bad = self.damage(folder)
        code, _, err = run("resnet", "train", *TRAIN, "--data", folder)
        self.assertEqual(code, 3, err)
        self.assertTrue(any(file in err for file in bad), err)
        self.assertIn("--bad-files skip", err)
        skip = [*TRAIN, "--data", folder, "--bad-files", "skip", "--epochs", 1]
        one, records = self.losses("resnet", *skip)
        self.assertEqual(records[-1]["bad_files"], 3)
        self.assertTrue(all("data_wait_ms" in r for r in records if "step" in r))
        # With pp=2 a rank reads the pictures and another one the labels.
        for options, ranks in ((["--mesh", "pp=2"], 2), (["--mesh", "dp=2", "--workers", 2], 2), (["--mesh", "tp=2"], 0)):
            losses, records = self.losses("resnet", *skip, *options, ranks=ranks)
            self.same(one, losses, 1e-4)
            self.assertEqual(records[-1]["bad_files"], 3, options)

    def test_what_cannot_be_read_is_not_damaged(self):
        """A read of one rank fails: with pp=2 a rank reads the pictures and another one the labels."""
        folder = self.pictures()
        library = os.path.join(programs.BUILD, "tests", "faults", "failing_calls.so")
        args = ["resnet", "train", *TRAIN, "--data", folder, "--bad-files", "skip", "--steps", 3, "--mesh", "pp=2", "--quiet"]

        def end(said, metrics):
            """Statuses, errors, and losses; rank 1 has these variables."""
            ranks = programs.start_ranks(*args, "--metrics", self.path(metrics), ranks=2,
                                         environment=lambda rank: said if rank == 1 else {})
            return programs.end_ranks(ranks), programs.read_losses(self.path(metrics))

        wanted = end({}, "plain")[1]
        self.assertEqual(len(wanted), 3)
        faults = {"LD_PRELOAD": library, "CLEAVE_FAULTS": os.path.join(folder, "train"), "CLEAVE_FAULT_LOG": self.path("log")}
        end(faults, "recorded")
        with open(self.path("log")) as log:
            calls = [line.split() for line in log]
        reads = [int(number) for _, number, call, *_ in calls if call == "read"]
        at = reads[-1]  # while it trains
        ends, losses = end({**faults, "CLEAVE_FAULT_AT": str(at), "CLEAVE_FAULT_KIND": "fail"}, "failed")
        self.assertEqual([status for status, _ in ends], [0, 0], ends)  # tried again
        self.assertEqual(losses, wanted)
        ends, losses = end({**faults, "CLEAVE_FAULT_AT": str(at), "CLEAVE_FAULT_KIND": "broken"}, "broken")
        self.assertEqual([status for status, _ in ends], [3, 3], ends)
        self.assertTrue(any("Input/output error; tried 4 times" in err for _, err in ends), ends)
        self.assertLess(len(losses), 3)

    def test_ranks_with_different_files_are_found(self):
        """A picture is damaged on the disk of one rank, and not among those that are compared before the first step."""
        one, two, ck = self.pictures("one"), self.path("two"), self.path("ck")
        for i in range(300):
            shutil.copy(os.path.join(GOLDENS, "plain.png"), os.path.join(one, "train", "ant", f"x{i}.png"))
        shutil.copytree(one, two)
        index = next(i for i in range(6, 306) if i not in [k * 318 // 256 for k in range(256)] + [k * 317 // 7 for k in range(8)])
        bad = [os.path.join(two, "train", label, file) for label in CLASSES for file in sorted(os.listdir(os.path.join(two, "train", label)))][index]
        with open(bad, "r+b") as f:
            f.seek(60)
            f.write(bytes(40))
        args = [*MODEL, "--batch", 53, "--seed", 3, "--threads", 1, "--bad-files", "skip", "--mesh", "pp=2", "--quiet", "--checkpoint", ck]
        ends = programs.end_ranks(programs.start_ranks("resnet", "train", *args, ranks=2, first=("--data", one), last=("--data", two)))
        self.assertEqual([status for status, _ in ends], [3, 3], ends)
        self.assertTrue(any(f"{os.path.basename(bad)}: damaged as rank 1 reads it, good as rank 0 reads it" in err for _, err in ends), ends)
        self.assertFalse(os.path.exists(os.path.join(ck, "manifest.json")))

    def test_a_training_resumes_in_the_middle_of_an_epoch(self):
        for data in (self.pictures(), self.tars(self.path("pictures"))):
            options, ck = ["--data", data], self.path("ck")
            whole, _ = self.losses("resnet", *TRAIN, *options, "--steps", 8)
            self.losses("resnet", *TRAIN, *options, "--steps", 2, "--checkpoint", ck)
            rest, _ = self.losses("resnet", "--checkpoint", ck, "--resume", *options, "--steps", 8, "--workers", 3)
            self.assertEqual(rest[-6:], whole[2:])  # the metrics are appended to those of the first two steps
            shutil.rmtree(ck)

    def test_other_data_than_before(self):
        folder, ck = self.pictures(), self.path("ck")
        train = ["--data", folder, "--checkpoint", ck]
        self.losses("resnet", *TRAIN, *train, "--steps", 2)
        os.rename(folder, folder + "-moved")
        train[1] = folder = folder + "-moved"
        self.losses("resnet", "--resume", *train, "--steps", 4)  # the same data elsewhere
        shutil.copy(os.path.join(GOLDENS, "restarts.jpg"), os.path.join(folder, "train", "bee", "grey.jpg"))
        self.refused("resnet", "train", "--resume", *train, "--steps", 6, word="the checkpoint was trained on other data: fingerprint of the training samples: sha256:")
        shutil.copy(os.path.join(GOLDENS, "plain.png"), os.path.join(folder, "train", "bee", "more.png"))
        self.refused("resnet", "train", "--resume", *train, "--steps", 6, word="training samples: 19 now, 18 before")
        shutil.copy(os.path.join(GOLDENS, "plain.png"), os.path.join(folder, "val", "bee", "more.png"))
        said = run("resnet", "train", "--resume", "--new-data", *train, "--steps", 6, "--metrics", self.path("new"))
        self.assertEqual(said[0], 0, said)
        self.assertIn("warning: evaluation samples: 10 now, 9 before", said[2])
        self.assertIn("--new-data: training samples: 19 now, 18 before; training goes on at the beginning of epoch 3", said[2])
        with open(self.path("new")) as lines:
            epochs = [record["epoch"] for record in map(json.loads, lines) if "step" in record]
        self.assertEqual(epochs, [3, 3])
        self.refused("resnet", "train", "--new-data", *TRAIN, "--data", folder, word="--new-data: needs --resume")

    def test_mixed_pictures(self):
        """The same function on every mesh, and as the reference interpreter computes it."""
        folder = self.pictures()
        mixed = [*TRAIN, "--mixup", 0.2, "--cutmix", 1, "--label-smoothing", 0.1, "--data", folder]
        one = self.losses("resnet", *mixed, "--steps", 4)[0]
        self.assertNotEqual(one, self.losses("resnet", *TRAIN, "--label-smoothing", 0.1, "--data", folder, "--steps", 4)[0][-4:])
        for options, ranks in ((["--mesh", "dp=3"], 0), (["--mesh", "pp=2"], 2), (["--mesh", "tp=2"], 0)):
            self.same(one, self.losses("resnet", *mixed, "--steps", 4, *options, ranks=ranks)[0][-4:], 1e-4)
        self.ok("resnet", "check", "--image", 8, "--channels", 3, "--classes", 3, "--batch", 4, "--mixup", 0.2, "--cutmix", 1, "--lr", 0.0005,
                "--data", "synthetic", "--mesh", "dp=2")
        self.refused("resnet", "train", *MODEL, "--mixup", 1, "--batch", 9, "--data", folder, word="9 samples of a microbatch cannot be cut into groups of 2")

    def test_top_5(self):
        """Of six classes: counted on every mesh, and in the predictions of the checkpoint."""
        folder, ck, p = self.pictures(), self.path("ck"), self.path("p.npy")
        model = [*MODEL[:-1], 6, "--batch", 6, "--seed", 3, "--threads", 1]
        _, records = self.losses("resnet", *model, "--data", folder, "--epochs", 1, "--checkpoint", ck)
        last = records[-1]
        self.ok("resnet", "predict", "--checkpoint", ck, "--data", folder, "-o", p)
        _, logits = read_npy(p)
        rows = [(logits[6 * i:6 * i + 6], i // 3) for i in range(9)]  # three pictures of each of three classes
        top = sum(sum(x > row[label] for x in row) < 5 for row, label in rows) / 9
        self.assertAlmostEqual(last["eval_accuracy_top5"], top)
        for options, ranks in ((["--mesh", "dp=3"], 0), (["--mesh", "tp=2"], 2), (["--batch", 4], 0)):
            said = json.loads(self.ok("resnet", "eval", "--checkpoint", ck, "--data", folder, "--json", *options, ranks=ranks))
            self.assertAlmostEqual(said["accuracy_top5"], top, msg=options)
            self.assertAlmostEqual(said["accuracy"], last["eval_accuracy"], msg=options)

    def test_plans_and_checkpoints_know_classes_and_transforms(self):
        folder, plan, ck = self.pictures(), self.path("p.plan"), self.path("ck")
        self.ok("resnet", "plan", *TRAIN, "--data", folder, "-o", plan)
        self.ok("cleave-run", plan, "--data", folder, "--steps", 3, "--checkpoint", ck, "--quiet")
        run_eval = ["--checkpoint", ck, "--data", folder]
        by_plan = json.loads(self.ok("cleave-run", plan, "--eval", *run_eval, "--json"))
        self.assertEqual(by_plan, json.loads(self.ok("resnet", "eval", *run_eval, "--threads", 1, "--json")))
        self.ok("resnet", "predict", *run_eval, "-o", self.path("p.npy"))
        for split in ("train", "val"):
            os.rename(os.path.join(folder, split, "ant"), os.path.join(folder, split, "emu"))
        for command in (["cleave-run", plan, "--eval", *run_eval], ["resnet", "eval", *run_eval],
                        ["resnet", "predict", *run_eval, "-o", self.path("q.npy")], ["cleave-run", plan, "--data", folder],
                        ["resnet", "train", "--resume", "--steps", 5, *run_eval]):
            self.refused(*command, word="the class emu")
        self.assertFalse(os.path.exists(self.path("q.npy")))


if __name__ == "__main__":
    programs.main()
