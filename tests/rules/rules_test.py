"""Every rule of rules.py and headers.py finds a planted violation, and nothing in a tree that keeps them.

    COMPILER in the environment names the compiler for headers.py
"""
import os
import tempfile
import unittest
from pathlib import Path

import headers
import rules

CLEAN = {
    "src/base/span.h": "#pragma once\n#include <span>\n",
    "src/comm/session.cpp": '#include "comm/session.h"\n#include <mpi.h>\n',
    "src/comm/session.h": '#include "base/span.h"\n',
    "src/model/stage.h": '#include <ATen/core/Tensor.h>\n#include "base/span.h"\n',
    "src/train/engine.cpp": '#include <ATen/core/Tensor.h>\n',
    "src/spec/spec.h": "// srun is Slurm's launcher\n",
    "src/checkpoint/format/state.cpp": '#include "checkpoint/format/state.h"\n#include <hdf5.h>\n',
    "src/checkpoint/format/state.h": '#include "base/span.h"\n',
    "src/checkpoint/parallel/save.h": '#include "checkpoint/format/state.h"\n#include "comm/session.h"\n',
    "src/device/cuda/device.cpp": "#include <cuda_runtime.h>\n",
    "src/comm/nccl/nccl_communicator.cpp": "#include <cuda_runtime.h>\n#include <nccl.h>\n",
    "tools/ckpt/main.cpp": '#include "checkpoint/format/state.h"\n#include "ckpt/commands.h"\n',
    "tools/ckpt/commands.h": '#include "base/span.h"\n',
    "tests/comm/session_test.cpp": '#include "comm/session.h"\n#include <mpi.h>\n',
    "inputs/text.ini": "path = /usr/share/perl\n",
    "README.md": "runs/tmp and build/work\n",
}


class TreeTest(unittest.TestCase):
    def plant(self, files: dict[str, str]) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in {**CLEAN, **files}.items():
            path = Path(folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Path(folder.name)

    def check(self, root: Path) -> list[str]:
        raise NotImplementedError

    def assert_found(self, planted: dict[str, str], *messages: str):
        found = self.check(self.plant(planted))
        self.assertEqual(len(found), len(messages), found)
        for line, message in zip(found, messages):
            self.assertIn(message, line)


class RulesTest(TreeTest):
    def check(self, root: Path) -> list[str]:
        return rules.violations(root)

    def test_clean_tree(self):
        self.assert_found({})

    def test_include_against_the_arrows(self):
        self.assert_found({"src/base/log.cpp": '\n#include "comm/session.h"\n'},
                          "src/base/log.cpp:2: base may not include comm (allowed: nothing)")

    def test_model_knows_neither_comm_nor_shard(self):
        self.assert_found({"src/model/a.cpp": '#include "comm/session.h"\n'},
                          "model may not include comm")

    def test_unknown_module(self):
        self.assert_found({"src/utils/heap.h": ""}, "module 'utils' is not in the table")
        self.assert_found({"src/checkpoint/heap.h": ""}, "module 'checkpoint' is not in the table")
        self.assert_found({"tools/zip/main.cpp": ""}, "module 'tools' is not in the table")

    def test_parts_of_a_module(self):
        self.assert_found({"src/checkpoint/format/a.cpp": '#include "checkpoint/parallel/save.h"\n'},
                          "checkpoint/format may not include checkpoint/parallel (allowed: base, spec, kernels)")
        self.assert_found({"src/checkpoint/format/a.cpp": '#include "comm/session.h"\n'},
                          "checkpoint/format may not include comm")

    def test_tool_without_mpi(self):
        self.assert_found({"tools/ckpt/a.cpp": '#include "checkpoint/parallel/save.h"\n'},
                          "tools/ckpt/a.cpp:1: tools/ckpt may not include checkpoint/parallel")
        self.assert_found({"tools/ckpt/a.cpp": "#include <hdf5.h>\n"},
                          "checkpoint/, data/hdf5_source., tools/micro/token_file. only")

    def test_mpi_outside_comm(self):
        self.assert_found({"src/shard/store.cpp": "#include <mpi.h>\n"},
                          "<mpi.h> may be included in comm/, tools/micro/mpi_calls. only")

    def test_cuda_and_nccl_outside_their_rooms(self):
        self.assert_found({"src/device/device.h": "#include <cuda_runtime.h>\n"},
                          "<cuda_runtime.h> may be included in device/cuda/, kernels/cuda/, comm/nccl/ only")
        self.assert_found({"src/train/trace.cpp": "#include <nvtx3/nvtx3.hpp>\n"}, "device/cuda/")
        self.assert_found({"src/comm/session.cpp": '#include "comm/session.h"\n#include <nccl.h>\n'},
                          "<nccl.h> may be included in comm/nccl/ only")
        self.assert_found({"src/device/cuda/device.cpp": "#include <nccl.h>\n"}, "comm/nccl/ only")

    def test_hdf5_outside_checkpoint(self):
        self.assert_found({"src/train/save.cpp": "#include <hdf5.h>\n"},
                          "checkpoint/, data/hdf5_source., tools/micro/token_file. only")

    def test_torch_outside_its_places(self):
        self.assert_found({"src/shard/layout.h": "#include <torch/torch.h>\n"},
                          "<torch/torch.h> may be included in")
        self.assert_found({"src/optim/a.cpp": "# include <c10/util/Half.h>\n"},
                          "<c10/util/Half.h> may be included in")

    def test_torch_in_cuda_code_through_a_project_header(self):
        self.assert_found({"src/model/kernel.cu": '#include "model/stage.h"\n'},
                          "src/model/kernel.cu:1: CUDA code")

    def test_slurm(self):
        self.assert_found({"src/comm/launch.cpp": 'getenv("SLURM_NTASKS");\n'},
                          "src/comm/launch.cpp:1: only train/")
        self.assert_found({"src/app/launch.cpp": 'getenv("SLURM_NTASKS");\n'})

    def test_include_cycle(self):
        self.assert_found({"src/spec/a.h": '#include "spec/b.h"\n', "src/spec/b.h": '#include "spec/a.h"\n'},
                          "src/spec/a.h -> src/spec/b.h -> src/spec/a.h")

    def test_too_many_torch_sources(self):
        room = rules.MOST_TORCH_SOURCES - 1  # torch_binding.cpp is one
        sources = {f"src/model/stage{n}.cpp": '#include "model/stage.h"\n' for n in range(room)}
        self.assert_found(sources)
        self.assert_found({**sources, "tests/model/more_test.cpp": '#include "model/stage.h"\n'},
                          f"{room + 2} source files see LibTorch")

    def test_long_file(self):
        self.assert_found({"src/base/long.cpp": "\n" * rules.MOST_LINES})
        self.assert_found({"src/base/long.cpp": "\n" * (rules.MOST_LINES + 1)}, "split the file")

    def test_machine_path(self):
        self.assert_found({"README.md": "cd /root/project\n"},
                          "README.md:1: path of one machine: /root")
        self.assert_found({"inputs/a/b.ini": "\npath = /tmp/text\n"},
                          "inputs/a/b.ini:2: path of one machine: /tmp")


class HeadersTest(TreeTest):
    def check(self, root: Path) -> list[str]:
        return headers.check(root, [os.environ["COMPILER"], f"-I{root}/src"])

    def test_clean_tree(self):
        self.assert_found({})

    def test_header_that_leans_on_its_includer(self):
        self.assert_found({"src/base/size.h": "std::size_t size();\n"},
                          "src/base/size.h does not compile on its own")

    def test_own_header_is_not_first(self):
        self.assert_found({"src/comm/session.cpp": '#include <mpi.h>\n#include "comm/session.h"\n'},
                          'the first include must be its own header, "comm/session.h"')


if __name__ == "__main__":
    unittest.main()
