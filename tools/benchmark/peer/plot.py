"""plot.py RESULTS PNG: tokens a second of each contender, with quartiles, one panel a case."""
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402


def main() -> None:
    data = json.loads(Path(sys.argv[1]).read_text())
    cases = [case for case in data["cases"] if any(measure["unit"] == "tokens/s" for measure in case["measures"])]
    if not cases:
        return  # nothing was trained
    figure, panels = plt.subplots(len(cases), 1, figsize=(8, 0.6 + 2.4 * len(cases)), squeeze=False)
    for case, axes in zip(cases, panels[:, 0]):
        speeds = [measure for measure in case["measures"] if measure["unit"] == "tokens/s"][::-1]
        errors = [[measure["value"] - measure["low"] for measure in speeds],
                  [measure["high"] - measure["value"] for measure in speeds]]
        axes.barh([measure["name"].removesuffix(": tokens/s") for measure in speeds],
                  [measure["value"] for measure in speeds], xerr=errors, capsize=3)
        axes.set_title(case["title"])
        axes.set_xlabel("tokens/s, median and quartiles")
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=120)


if __name__ == "__main__":
    main()
