"""Results as a table of text or Markdown."""
from typing import Any, Sequence

from goals import goal_of
from results import Measure, Results

HEAD = ("Measure", "Median", "Quartiles", "Goal")


def number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def row(case: str, measure: Measure, about: dict[str, Any]) -> tuple[str, str, str, str]:
    spread = f"{number(measure.low)} to {number(measure.high)}, {measure.samples} rounds" if measure.samples > 1 else ""
    goal = goal_of(case, measure)
    verdict = goal.verdict(measure, about) if goal else ""
    return measure.name, f"{number(measure.value)} {measure.unit}", spread, verdict


def about_lines(results: Results) -> list[str]:
    about = results.about
    return [f"`{about['command']}` at commit {about['commit']}, {about['date']}",
            f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']:.0f} GiB; " + ", ".join(about["versions"])]


def text(results: Results) -> str:
    lines = [line.replace("`", "") for line in about_lines(results)]
    for case in results.cases:
        lines += ["", f"{case.name}: {case.title}"]
        if case.error:
            lines.append(f"  no result: {case.error}")
            continue
        body = [HEAD, *(row(case.name, measure, results.about) for measure in case.measures)]
        widths = [max(len(line[column]) for line in body) for column in range(len(HEAD))]
        lines += ["  " + "  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip() for line in body]
    return "\n".join(lines)


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown(results: Results) -> str:
    """What has a goal, and ratios of whole programs; the rest is in results.json."""
    lines = about_lines(results)
    lines = [lines[0] + ":", "", lines[1] + "."]
    for case in results.cases:
        if case.error:
            continue
        lines += ["", markdown_row((case.title, *HEAD[1:])), "|" + "---|" * len(HEAD)]
        lines += [markdown_row(row(case.name, measure, results.about)) for measure in case.measures
                  if goal_of(case.name, measure) or (measure.unit == "x" and case.name != "micro")]
    return "\n".join(lines)
