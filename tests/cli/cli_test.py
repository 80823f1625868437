#!/usr/bin/env python3
"""Black-box tests of the command line tool: exit codes, messages, hostile input, interruption, the store.

The tool's path is in the environment variable MOETUNE_BINARY. Layers are tiny, so that a run takes a second or two.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import tempfile
import time
import unittest

BINARY = os.environ.get("MOETUNE_BINARY", "")
CHECKPOINTS = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "checkpoints"
COMMANDS = ("devices", "check", "bench", "tune", "results", "worker")
ADDRESS_SPACE = 4 << 30
ERROR_S = 5  # within which a refusal comes
DONE, NEGATIVE, BAD_INPUT = 0, 1, 2
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

TINY = {
    "model_type": "qwen3_moe", "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64, "num_experts": 8,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "hidden_act": "silu", "torch_dtype": "bfloat16", "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}


def sanitized():
    """A sanitizer reserves terabytes of addresses, and everything takes its time."""
    with open(BINARY, "rb") as file:
        return b"__asan_init" in file.read()


SLOWER = 10 if BINARY and sanitized() else 1


def limit_memory():
    if SLOWER == 1:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def workers_of(pid):
    """(pid, start time) of the processes that `pid` started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rsplit(")", 1)[1].split()
            if int(fields[1]) == pid:
                found.append((int(stat.parent.name), fields[19]))
    return found


def alive(process):
    try:
        fields = pathlib.Path(f"/proc/{process[0]}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and fields[19] == process[1]


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds * SLOWER
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())


def rows_of(store):
    """key -> (id, workload, backend, config, outcome) of every row; empty where there is no store yet."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=10)) as database:
            rows = database.execute("SELECT key, id, workload, backend, config, outcome FROM results").fetchall()
    except sqlite3.OperationalError:
        return {}
    return {row[0]: row[1:] for row in rows}


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moetune_cli_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = dict(os.environ, MOETUNE_HOME=str(self.folder / "home"), MOETUNE_LOG="warn")
        self.store = self.folder / "home" / "results.sqlite"
        self.tiny = self.model("tiny", TINY)

    def model(self, name, config):
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())
        return folder

    def checkpoint(self, fixture, name=None):
        folder = self.folder / (name or fixture)
        shutil.copytree(CHECKPOINTS / fixture, folder)
        return folder

    def start(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.environment,
                   "preexec_fn": limit_memory, **options}
        process = subprocess.Popen([BINARY, *map(str, arguments)], **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
        process.wait()

    def finish(self, process, seconds):
        out, err = process.communicate(timeout=seconds * SLOWER)
        return process.returncode, out, err

    def call(self, *arguments, seconds=30, **options):
        return self.finish(self.start(*arguments, **options), seconds)

    def run_json(self, *arguments, code=DONE, seconds=30):
        got, out, err = self.call(*arguments, "--json", seconds=seconds)
        self.assertEqual(got, code, err)
        document = json.loads(out)
        self.assertEqual(document["moetune"]["schema"], 1)
        return document

    def tune(self, *arguments, code=DONE):
        return self.run_json("tune", self.tiny, "--device", "cpu", "--tokens", "1", *arguments, code=code)

    def assert_error(self, err, words=""):
        """One line that says what is wrong, hints below it, nothing else."""
        text = err.decode()  # whatever was fed in, what comes out is UTF-8
        lines = text.splitlines()
        self.assertTrue(lines and lines[0].startswith("moetune: error: "), text)
        for line in lines[1:]:
            self.assertTrue(line.startswith("  hint: "), text)
        self.assertTrue(text.endswith("\n"))
        self.assertLess(len(text), 5000)
        self.assertIsNone(CONTROL.search(text), text)
        self.assertIn(words, text)
        return text

    def refused(self, *arguments, words="", **options):
        code, out, err = self.call(*arguments, seconds=ERROR_S, **options)
        text = self.assert_error(err, words)
        self.assertEqual((code, out), (BAD_INPUT, b""), text)
        return text

    def assert_store_sound(self):
        with contextlib.closing(sqlite3.connect(self.store)) as database:
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            twice = database.execute("SELECT backend, config, workload, count(*) FROM results "
                                     "GROUP BY backend, config, workload HAVING count(*) > 1").fetchall()
            self.assertEqual(twice, [])


class Help(CliTest):
    def test_every_command_has_help(self):
        code, out, err = self.call("--help")
        self.assertEqual((code, err), (DONE, b""))
        for command in COMMANDS:
            with self.subTest(command):
                self.assertEqual(command.encode() in out.split(), command != "worker")
                code, text, err = self.call(command, "--help")
                self.assertEqual((code, err), (DONE, b""))
                self.assertIn(f"Usage: moetune {command}".encode(), text)

    def test_version(self):
        code, out, err = self.call("--version")
        self.assertEqual((code, err), (DONE, b""))
        self.assertRegex(out.decode(), r"^\d+\.\d+\.\d+\n$")


class ExitCodes(CliTest):
    def test_done(self):
        for arguments in (["devices"], ["check", self.tiny, "--device", "cpu"], ["check", self.tiny, "--configs", "--device", "cpu"],
                          ["check", "Qwen3-30B-A3B", "--device", "cpu"]):
            with self.subTest(arguments=arguments):
                code, out, err = self.call(*arguments)
                self.assertEqual((code, err), (DONE, b""))
                self.assertTrue(out)

    def test_bench_tune_and_results(self):
        code, out, err = self.call("bench", self.tiny, "--device", "cpu", "--tokens", "1,4")
        self.assertEqual(code, DONE, err)
        self.assertIn(b"moetune:cpu_decode", out)
        code, out, err = self.call("tune", self.tiny, "--device", "cpu", "--tokens", "1", "--budget", "3")
        self.assertEqual(code, DONE, err)
        self.assertIn(b"3 candidates in", out)
        code, out, err = self.call("results", "tiny", "--tokens", "1")
        self.assertEqual((code, err), (DONE, b""))
        self.assertEqual(out.count(b" ok "), 3)

    def test_negative(self):
        self.assertEqual(self.call("check", self.tiny, "--gpu", "sm_70")[0], NEGATIVE)
        self.assertEqual(self.call("results")[0], NEGATIVE)
        self.assertFalse(self.store.exists(), "asking for results made a store")
        gpu_only = ("--device", "cpu", "--tokens", "1", "--backends", "sm80_decode")
        self.assertEqual(self.call("bench", self.tiny, *gpu_only)[0], NEGATIVE)
        self.assertEqual(self.call("tune", self.tiny, *gpu_only, "--budget", "1")[0], NEGATIVE)

    def test_bad_input(self):
        cases = [
            ([], "subcommand"),
            (["nosuch"], ""),
            (["devices", "--bogus"], "--bogus"),
            (["devices", "extra"], "extra"),
            (["check"], "MODEL"),
            (["check", ""], "no model"),
            (["check", self.tiny, "--tp", "x"], "--tp"),
            (["check", self.tiny, "--tp", "0"], "--tp 0"),
            (["check", self.tiny, "--tp-rank", "1"], "--tp-rank 1"),
            (["check", self.tiny, "--ep", "3"], "3"),
            (["check", self.tiny, "--layer", "99"], "layer 99"),
            (["check", self.tiny, "--layer", "-5"], "layer -5"),
            (["check", self.tiny, "--gpu", "no such thing"], "no such thing"),
            (["check", self.tiny, "--gpu", "sm_90", "--device", "cpu"], "--gpu and --device"),
            (["check", self.tiny, "--device", "abacus"], "abacus"),
            (["results", "--limit", "0"], "--limit"),
            (["results", "--tokens", "-1"], "--tokens"),
            (["results", "--status", "odd"], "odd"),
            (["results", "--store", "a" * 300], "store"),
            (["results", "--store", self.folder], "store"),
            (["results", "--store", "/dev/null"], "store"),
        ]
        for command in ("bench", "tune"):
            cases += [
                ([command], "MODEL"),
                ([command, self.tiny, "--routing", "odd"], "odd"),
                ([command, self.tiny, "--backends", "odd"], "odd"),
                ([command, self.tiny, "--backends", "cpu_decode,"], "--backends"),
                ([command, self.tiny, "--timeout", "nan"], "--timeout"),
                ([command, self.tiny, "--timeout", "-1"], "--timeout"),
                ([command, self.tiny, "--timeout", "x"], "--timeout"),
                ([command, self.tiny, "--store", "/dev/zero"], "store"),
                ([command, self.tiny, "--store", "/dev/full"], "store"),
            ]
            cases += [([command, self.tiny, "--tokens", bad], "--tokens")
                      for bad in ("", ",", "x", "-1", "1.5", "8-1", "0-8", "99999999999999999999", "1,2,", ",".join(map(str, range(65))))]
            cases += [([command, self.tiny, "--seed", bad], "--seed") for bad in ("-1", " -1", "x", "1.5", "99999999999999999999999")]
        for arguments, words in cases:
            with self.subTest(arguments=[str(argument)[:40] for argument in arguments]):
                self.refused(*arguments, words=words)

    def test_unknown_model_lists_the_nearest(self):
        text = self.refused("check", "Qwen3-30B-A3C")
        nearest = text.split("nearest known names: ")[1].splitlines()[0].split(", ")
        self.assertIn("Qwen3-30B-A3B", nearest)
        self.assertEqual(len(set(nearest)), len(nearest), "a name twice")
        for name in ("a\nb\x1b[31mc", b"\xff\xfe", "a" * 5000, "../" * 50):
            with self.subTest(name=name[:20]):
                self.refused("check", os.fsdecode(name))

    def test_a_cut_that_does_not_divide_gives_numbers(self):
        text = self.refused("check", self.tiny, "--tp", "5")
        for number in ("64", "5", "12.8", "4 and 8"):
            self.assertIn(number, text)

    def test_settings_are_refused_before_a_worker_starts(self):
        """Were the worker asked first, it would complain of the weights."""
        folder = self.checkpoint("fp8_block")
        (folder / "model.safetensors").write_bytes(b"\xff" * 64)
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for bad in ("", "x", "-5", "-5s", "1e9h", "nans", "10 m", "1d"):
            with self.subTest(budget=bad):
                self.refused("tune", folder, "--device", "cpu", "--budget", bad, words="--budget")
        self.refused("tune", folder, "--device", "cpu", "--strategy", "odd", words="--strategy")
        self.refused("tune", folder, "--device", "cpu", "--record", pipe, words="not a regular file")
        self.assertTrue(pipe.is_fifo())
        self.refused("tune", folder, "--device", "cpu", "--record", "/proc/nosuch/file", words="/proc/nosuch/file")
        self.refused("bench", folder, "--device", "cpu", "--config", "threads=1", words="--backends")
        one = ("bench", folder, "--device", "cpu", "--backends", "cpu_decode", "--config")
        for bad in ("odd=1", "threads", "threads=x", "threads=-3", "=", ",", "threads=1,odd=2"):
            with self.subTest(config=bad):
                self.refused(*one, bad, words="--config")
        self.refused("tune", folder, "--device", "cpu", words="safetensors")


class JsonOutput(CliTest):
    def test_answers(self):
        self.assertTrue(self.run_json("devices")["devices"])
        self.assertTrue(any(backend["runs"] for backend in self.run_json("check", self.tiny, "--device", "cpu")["backends"]))
        self.run_json("check", self.tiny, "--gpu", "sm_70", code=NEGATIVE)
        self.assertEqual(self.run_json("results", code=NEGATIVE)["results"], [])
        bench = self.run_json("bench", self.tiny, "--device", "cpu", "--tokens", "1,4")
        self.assertEqual({row["tokens"] for row in bench["results"]}, {1, 4})
        record = self.folder / "record.json"
        report = self.tune("--budget", "4", "--record", record)
        self.assertEqual((report["evaluated"], report["reused"], len(report["winners"])), (4, 0, 1))
        self.assertTrue(json.loads(record.read_text()))
        self.assertEqual(len(self.run_json("results", "--limit", "2")["results"]), 2)

    def test_calibration(self):
        self.assertGreater(self.run_json("devices", "--calibrate")["devices"][0]["ceilings"]["read_gb_s"], 0)

    def test_errors(self):
        cases = [["devices", "--bogus"], ["check"], ["check", self.tiny, "--tp", "5"], ["check", "no such\nmodel \udcff"],
                 ["bench", self.tiny, "--tokens", "x"], ["bench", self.tiny, "--seed", "x"], ["tune", self.tiny, "--budget", "x"],
                 ["tune", self.folder], ["results", "--status", "x"], ["results", "--limit", "x"], ["nosuch"], []]
        for arguments in cases:
            with self.subTest(arguments=arguments):
                code, out, err = self.call(*arguments, "--json", seconds=ERROR_S)
                self.assertEqual(code, BAD_INPUT)
                self.assert_error(err)
                document = json.loads(out)
                self.assertTrue(document["error"])
                self.assertIsInstance(document["hints"], list)


class HostileConfig(CliTest):
    def config_refused(self, folder, words=""):
        for command in ("check", "bench", "tune"):
            with self.subTest(command):
                self.refused(command, folder, words=words)

    def test_no_config(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.config_refused(empty, "without config.json")
        for name, make in (("zero", lambda path: path.symlink_to("/dev/zero")), ("pipe", os.mkfifo), ("folder", os.mkdir),
                           ("loop", lambda path: path.symlink_to(path))):
            with self.subTest(name):
                folder = self.folder / name
                folder.mkdir()
                make(folder / "config.json")
                self.config_refused(folder)
        self.config_refused("/dev/zero", "not a regular file")
        self.config_refused("/proc/self/mem")

    def test_no_json(self):
        ten_mb = 10 << 20
        cases = {
            "nothing": b"",
            "brackets": b"[" * ten_mb,
            "braces": b'{"a":' * (ten_mb // 5),
            "pairs": b"[" * (ten_mb // 2) + b"]" * (ten_mb // 2),
            "flat": b"[" + b"1," * (ten_mb // 2) + b"1]",
            "huge": b" " * (17 << 20),
            "latin": '{"model_type": "qwen3_moe", "näme": 1}'.encode("latin-1"),
            "binary": bytes(range(256)) * 16,
            "utf16": json.dumps(TINY).encode("utf-16"),
            "zeros": b"\0" * 4096,
            "cut": json.dumps(TINY).encode()[:-1],
            "tail": json.dumps(TINY).encode() + b"}",
            "scalar": b"7",
            "null": b"null",
        }
        for name, text in cases.items():
            with self.subTest(name):
                self.config_refused(self.model(name, text))

    def test_no_layer(self):
        cases = {
            "num_experts": (0, -1, 1.5, "8", None, 2**62, 2**64, 1e300, [], {}, True),
            "num_experts_per_tok": (0, -1, 9, 2**40, "2"),
            "hidden_size": (0, -128, 2**62, 2**64 + 1, "128", [], [128, 256]),
            "moe_intermediate_size": (0, -1, 2**62, "64"),
            "num_hidden_layers": (-1, 2**62, 10**30, "x"),
            "decoder_sparse_step": (-1, "x"),
            "hidden_act": ("no_such_activation", 7),
            "model_type": (7, "x" * 1000),
            "quantization_config": ({"quant_method": "odd"}, [1], {"quant_method": "fp8", "weight_block_size": [0, 0]},
                                    {"quant_method": "fp8", "weight_block_size": [-8, 2**62]}),
        }
        for key, values in cases.items():
            for number, value in enumerate(values):
                with self.subTest(key=key, value=value):
                    folder = self.model(f"{key}_{number}", {**TINY, key: value})
                    self.refused("check", folder)
        self.config_refused(self.model("top_k", {**TINY, "num_experts_per_tok": 9}), "9")

    def test_a_layer_larger_than_memory(self):
        huge = self.model("huge", {**TINY, "num_experts": 512, "hidden_size": 32768, "moe_intermediate_size": 32768})
        self.assertEqual(self.call("check", huge, "--device", "cpu")[0], NEGATIVE)
        large = self.model("large", {**TINY, "hidden_size": 16384, "moe_intermediate_size": 16384})
        for folder in [huge, large] if SLOWER == 1 else [huge]:  # the large one meets the limit of this test
            for command in ("bench", "tune"):
                with self.subTest(folder=folder.name, command=command):
                    self.refused(command, folder, "--device", "cpu", "--tokens", "1", words="memory")

    def test_names_cannot_command_the_terminal(self):
        folder = self.model("evil\x1b[31m\nname", {**TINY, "model_type": "odd\x1b[2J\rtype"})
        code, out, err = self.call("check", folder, "--device", "cpu")
        self.assertEqual((code, err), (DONE, b""))
        self.assertIn(b"odd", out)
        self.assertIsNone(CONTROL.search(out.decode()))
        self.run_json("check", folder, "--device", "cpu")
        self.refused("check", folder, "--tp", "5")


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + length]), data[8 + length:]


def write_safetensors(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class HostileWeights(CliTest):
    def weights_refused(self, folder, words=""):
        self.refused("bench", folder, "--device", "cpu", "--tokens", "1", words=words)

    def damaged(self, name, damage):
        folder = self.checkpoint("fp8_block", name)
        path = folder / "model.safetensors"
        path.chmod(0o600)
        damage(path)
        return folder

    def test_whole_ones_run(self):
        for fixture in ("fp8_block", "mixtral_sharded"):
            with self.subTest(fixture):
                self.run_json("bench", self.checkpoint(fixture), "--device", "cpu", "--tokens", "1")

    def test_damaged_files(self):
        whole = (CHECKPOINTS / "fp8_block" / "model.safetensors").read_bytes()
        cases = {
            "nothing": b"",
            "short": whole[:5],
            "header_cut": whole[:700],
            "data_cut": whole[:-1],
            "length_2_63": struct.pack("<Q", 1 << 63) + whole[8:],
            "length_all_ones": b"\xff" * 8 + whole[8:],
            "length_0": b"\0" * 8 + whole[8:],
            "length_1_gb": struct.pack("<Q", 1 << 30) + whole[8:],
            "tail": whole + b"\0",
            "zeros": b"\0" * len(whole),
            "brackets": struct.pack("<Q", 10 << 20) + b"[" * (10 << 20),
            "braces": struct.pack("<Q", 10 << 20) + b'{"a":' * (2 << 20),
        }
        for name, data in cases.items():
            with self.subTest(name):
                self.weights_refused(self.damaged(name, lambda path, data=data: path.write_bytes(data)), "model.safetensors")

    def test_damaged_headers(self):
        scale = "model.layers.0.mlp.experts.0.down_proj.weight_scale_inv"
        other = "model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv"

        def change(**fields):
            return lambda header: header[scale].update(fields)

        cases = {
            "overlap": lambda header: header[other].update(data_offsets=header[scale]["data_offsets"]),
            "backward": change(data_offsets=[16, 0]),
            "beyond": change(data_offsets=[0, 1 << 62]),
            "negative": change(data_offsets=[-16, 0]),
            "wrapped": change(shape=[1 << 62, 1 << 62]),
            "shape": change(shape=[4, 4]),
            "type": change(dtype="F99"),
            "other_type": change(dtype="I32"),
            "no_shape": lambda header: header[scale].pop("shape"),
            "absent": lambda header: header.pop(scale),
            "scalar": lambda header: header.update({scale: 7}),
        }
        for name, edit in cases.items():
            def damage(path, edit=edit):
                header, data = read_safetensors(path)
                edit(header)
                write_safetensors(path, header, data)
            with self.subTest(name):
                self.weights_refused(self.damaged(name, damage))

    def test_scales_that_are_no_numbers(self):
        for name, bits in (("nan", b"\x00\x00\xc0\x7f"), ("inf", b"\x00\x00\x80\x7f")):
            def damage(path, bits=bits):
                header, data = read_safetensors(path)
                begin = header["model.layers.0.mlp.experts.1.up_proj.weight_scale_inv"]["data_offsets"][0]
                write_safetensors(path, header, data[:begin] + bits + data[begin + 4:])
            with self.subTest(name):
                self.weights_refused(self.damaged(name, damage), f"experts.1.up_proj.weight: the scale at row 0, group 0 is {name}")

    def test_damaged_index(self):
        whole = json.loads((CHECKPOINTS / "mixtral_sharded" / "model.safetensors.index.json").read_text())
        shard = whole["weight_map"]["model.layers.0.block_sparse_moe.experts.0.w1.weight"]

        def renamed(to):
            return lambda text: text.replace(shard, to)

        cases = {
            "absent_shard": renamed("model-00009-of-00004.safetensors"),
            "outside": renamed("../outside.safetensors"),
            "absolute": renamed("/dev/zero"),
            "no_json": lambda text: text[:-5],
            "brackets": lambda text: "[" * (10 << 20),
            "no_map": lambda text: "{}",
            "list": lambda text: '{"weight_map": []}',
        }
        for name, edit in cases.items():
            with self.subTest(name):
                folder = self.checkpoint("mixtral_sharded", name)
                index = folder / "model.safetensors.index.json"
                index.write_text(edit(index.read_text()))
                self.weights_refused(folder)
        folder = self.checkpoint("mixtral_sharded", "deleted")
        (folder / shard).unlink()
        self.weights_refused(folder, shard)
        (folder / shard).symlink_to("/dev/zero")
        self.weights_refused(folder, shard)


class Stopping(CliTest):
    LONG = ("--device", "cpu", "--tokens", "1,4", "--budget", "10m")

    def start_tune(self, *arguments):
        return self.start("tune", self.tiny, *self.LONG, "--json", *arguments)

    def assert_workers_gone(self, workers):
        self.assertTrue(wait_until(lambda: not any(map(alive, workers)), 1), "a worker outlived its parent by a second")

    def test_killed_and_started_again(self):
        seed = random.randrange(1 << 32)
        moments = random.Random(seed)
        with self.subTest(seed=seed):
            known = {}
            # Two kills at any moment of the start, two while candidates run.
            for enough in (0, 0, 5, 25):
                tune = self.start_tune()
                if enough:
                    self.assertTrue(wait_until(lambda: len(rows_of(self.store)) >= len(known) + enough, 20), "nothing is kept")
                time.sleep(moments.uniform(0, 0.1 if enough else 1))
                workers = workers_of(tune.pid)
                tune.send_signal(signal.SIGKILL)
                tune.wait()
                if enough:
                    self.assertTrue(workers)
                self.assert_workers_gone(workers)
                rows = rows_of(self.store)
                self.assertEqual({key: rows.get(key) for key in known}, known, "a result was lost or measured again")
                known = rows
            self.assertGreaterEqual(len(known), 30)
            of_one_token = sum(json.loads(row[1])["tokens"] == 1 for row in known.values())
            report = self.tune("--budget", str(of_one_token + 3))
            self.assertEqual(report["evaluated"], of_one_token + 3)
            self.assertGreaterEqual(report["reused"], 1)
            rows = rows_of(self.store)
            self.assertEqual({key: rows.get(key) for key in known}, known)
            self.assertEqual(len(rows) - len(known), report["evaluated"] - report["reused"])
            self.assert_store_sound()

    def test_interrupted_ends_with_what_it_found(self):
        tune = self.start_tune()
        self.assertTrue(wait_until(lambda: len(rows_of(self.store)) >= 5, 20))
        workers = workers_of(tune.pid)
        tune.send_signal(signal.SIGINT)
        code, out, err = self.finish(tune, 3)
        self.assertEqual(code, DONE, err)
        report = json.loads(out)
        self.assertGreaterEqual(report["evaluated"], 5)
        self.assertEqual(len(rows_of(self.store)), report["evaluated"])
        self.assertEqual([row["complete"] for row in report["winners"]], [False])
        self.assert_workers_gone(workers)
        self.assert_store_sound()

    def test_interrupted_before_anything_was_found(self):
        for stop in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(stop):
                tune = self.start_tune()
                self.assertTrue(wait_until(lambda: workers_of(tune.pid), 5))
                time.sleep(0.2)
                workers = workers_of(tune.pid)
                tune.send_signal(stop)
                code, out, err = self.finish(tune, 3)
                self.assertEqual(code, NEGATIVE, err)
                self.assert_error(err, "interrupted")
                self.assertIn("interrupted", json.loads(out)["error"])
                self.assert_workers_gone(workers)

    def test_two_at_once_on_one_store(self):
        two = [self.start("tune", self.tiny, "--device", "cpu", "--tokens", tokens, "--budget", "40", "--json")
               for tokens in ("1,4", "4,1")]
        for tune in two:
            code, out, err = self.finish(tune, 60)
            self.assertEqual(code, DONE, err)
            self.assertEqual(json.loads(out)["evaluated"], 80)
        self.assert_store_sound()

    def test_a_reader_that_went_away(self):
        commands = (["devices"], ["check", "DeepSeek-V3", "--device", "cpu", "--json"], ["--help"], ["results"], ["check", "no such model", "--json"],
                    ["tune", self.tiny, "--device", "cpu", "--tokens", "1", "--budget", "2"])
        for arguments in commands:
            with self.subTest(arguments=arguments):
                read, write = os.pipe()
                os.close(read)
                code, _, err = self.call(*arguments, stdout=write)
                os.close(write)
                self.assertIn(code, (DONE, NEGATIVE, BAD_INPUT), err)

    def test_no_standard_streams_at_all(self):
        def close_all():
            limit_memory()
            for descriptor in (0, 1, 2):
                os.close(descriptor)

        code, _, _ = self.call("tune", self.tiny, "--device", "cpu", "--tokens", "1", "--budget", "3", preexec_fn=close_all)
        self.assertEqual(code, DONE)
        self.assertEqual(len(rows_of(self.store)), 3)
        self.assert_store_sound()


class DamagedStore(CliTest):
    def setUp(self):
        super().setUp()
        self.commands = (["tune", self.tiny, "--device", "cpu", "--tokens", "1", "--budget", "2"],
                         ["bench", self.tiny, "--device", "cpu", "--tokens", "1"], ["results"])

    def new_database(self, sql):
        with contextlib.closing(sqlite3.connect(self.store)) as database:
            database.executescript(sql)
        return self.store.read_bytes()

    def test_left_as_it_was(self):
        self.store.parent.mkdir()
        other = self.new_database("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1);")
        self.store.unlink()
        newer = self.new_database("PRAGMA application_id = 1836021108; PRAGMA user_version = 999; CREATE TABLE results (a);")
        cases = {
            "garbage": random.Random(1).randbytes(20000),
            "text": b"these are my notes\n" * 100,
            "damaged": newer[:16] + b"\xff" * 84 + newer[100:],
            "cut": other[:50],
            "other_program": other,
            "newer_layout": newer,
        }
        for name, data in cases.items():
            for arguments in self.commands:
                with self.subTest(name, command=arguments[0]):
                    for beside in self.store.parent.iterdir():
                        beside.unlink()
                    self.store.write_bytes(data)
                    self.refused(*arguments, words=str(self.store))
                    self.assertEqual(self.store.read_bytes(), data)

    def test_read_only(self):
        self.tune("--budget", "2")
        whole = self.store.read_bytes()
        self.store.chmod(0o444)
        self.store.parent.chmod(0o555)
        self.addCleanup(self.store.parent.chmod, 0o755)
        self.folder.chmod(0o755)
        as_user = {}
        if os.geteuid() == 0:  # root may write to anything
            nobody = 65534
            as_user = {"user": nobody, "group": nobody, "extra_groups": []}
            try:
                subprocess.run([BINARY, "--version"], stdout=subprocess.DEVNULL, check=True, **as_user)
            except (OSError, subprocess.SubprocessError) as problem:
                self.skipTest(f"cannot run as another user: {problem}")
        for arguments in self.commands[:2]:
            with self.subTest(arguments[0]):
                self.refused(*arguments, words=str(self.store), **as_user)
                self.assertEqual(self.store.read_bytes(), whole)


if __name__ == "__main__":
    if not BINARY:
        raise SystemExit("MOETUNE_BINARY says where the tool is, and is not set")
    unittest.main()
