"""make_inputs.py SETTINGS: writes the weights and tokens that both sides read.

SETTINGS is a JSON file: "model" (sizes), "weights" (a folder), "tokens" (a file of llm.c), "count", "seed", and
"device", which draws the weights.
"""
import json
import struct
import sys
from pathlib import Path

import models
import numpy as np
import torch

MAGIC, VERSION, HEADER_WORDS = 20240520, 1, 256  # llm.c's header of 16-bit tokens


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.manual_seed(settings["seed"])
    sizes = settings["model"]
    with torch.device(settings["device"]):
        model = models.make(sizes)
    model.initialise()
    models.save(model, sizes, Path(settings["weights"]))
    # Some tokens are much more frequent than others, as in text.
    drawn = np.random.default_rng(settings["seed"]).zipf(1.2, settings["count"])
    tokens = (drawn % sizes["vocab_size"]).astype("<u2")
    header = struct.pack(f"<{HEADER_WORDS}i", MAGIC, VERSION, len(tokens), *[0] * (HEADER_WORDS - 3))
    Path(settings["tokens"]).write_bytes(header + tokens.tobytes())


if __name__ == "__main__":
    main()
