"""The reports of a diagnosis: terminal, HTML and JSON say when, where and why, and nothing that is not so."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from parity.common.base.terminal import Terminal
from parity.common.diagnosis.result import (
    Diagnosis,
    Explanation,
    Finding,
    StepComparison,
    TensorComparison,
    When,
)
from parity.common.record.taps import layers_of, tapped_parameters
from parity.common.report.diagnosis import to_json
from parity.common.report.files import write_data
from parity.common.report.html.diagnosis import Subject, level_of, write_diagnosis_html
from parity.common.report.terminal_diagnosis import print_diagnosis
from parity_tests.helpers import ROOT
from parity_tests.helpers.records import DDP, TENSORFLOW, Run, recipe_spec
from parity_tests.test_report_html import HOSTILE, Page, rendered

SPEC = recipe_spec("digits_mlp", "steps=30")


def seen_of(
    step: int | None, spoiled: dict[str, float], replica: int | None = None
) -> tuple[TensorComparison, ...]:
    """Everything a step has, in order, all but `spoiled` in agreement."""
    layers = [layer.path for layer in layers_of(SPEC.model.tree())]
    parameters = tapped_parameters(SPEC)
    names = {
        "ids": ["ids"],
        "inputs": ["inputs", "targets"],
        "before": [f"before/parameters/{name}" for name in parameters],
        "forward": [f"forward/{path}" for path in layers],
        "loss": ["loss_sum", "count"],
        "backward": [f"backward/{path}" for path in reversed(layers)],
        "local_gradient": [f"local_gradient/{name}" for name in parameters],
        "total": ["total/loss_sum", "total/count"],
        "gradient": [f"gradient/{name}" for name in parameters],
        "clipped": [f"clipped/{name}" for name in parameters],
        "scalar": ["scalar/learning_rate"],
        "slots": [f"after/slots/momentum/{name}" for name in parameters],
        "update": [f"after/parameters/{name}" for name in parameters],
    }
    if step is None:
        names = {stage: names[stage] for stage in ("ids", "inputs", "forward", "loss")}
    return tuple(
        TensorComparison(name, replica, spoiled.get(name, 0.0 if stage == "ids" else 2.2e-16), 1e-12)
        for stage, group in names.items()
        for name in group
    )


def finding(
    step: int | None,
    seen: tuple[TensorComparison, ...],
    name: str,
    why: Explanation | None = None,
    **changes: object,
) -> Finding:
    """A finding at `name`, with the two tensors before it."""
    place = next(number for number, one in enumerate(seen) if one.name == name)
    bad = tuple(one for one in seen[place:] if not one.agrees and one.stage == seen[place].stage)
    found = Finding(step, seen[place].stage, name, (0, 1), bad, seen[max(0, place - 2) : place], why)
    return replace(found, **changes)


ACTIVATION = Explanation(
    cause="setting:function",
    text="activation acts as if function were tanh",
    confidence="confirmed",
    fix="in torch's layer 'activation', use relu as the spec says, not tanh",
    evidence="with function tanh the reference's own layer gives the candidate's output to 1.1e-16",
    culprit="torch ddp x2",
)
REDUCTION = Explanation(
    cause="mean_of_means",
    text="the mean of the replicas' means is taken, though their numbers of samples differ",
    confidence="confirmed",
    fix="divide the sum of all losses once, by the count of the global batch",
    evidence="fed the sum over the replicas divided by 29, the step agrees to 3e-16",
    layers=("dense_1", "dense_2 (fc in torch)"),
)


def synthetic() -> Diagnosis:
    """Two defects that are known and one that is not, of a pair on two replicas."""
    early = {"forward/activation": 0.31, "after/slots/momentum/dense_2/bias": 4e-8}
    late = {"forward/activation": 0.29} | {
        f"gradient/{name}": 0.031 + 0.001 * number for number, name in enumerate(tapped_parameters(SPEC))
    }
    steps = []
    for step, own in ((0, early), (22, late), (None, {})):
        trained = {
            one.name: 0.05 for one in seen_of(step, {}) if one.stage not in ("ids", "inputs", "before")
        }
        steps.append(
            StepComparison(
                step, seen_of(step, trained | own, 0) + seen_of(step, trained | own, 1), seen_of(step, own)
            )
        )
    first, second, _ = (one.injected for one in steps)
    return Diagnosis(
        source="replays",
        reference="tensorflow mirrored x1",
        candidate="torch ddp x2",
        name=SPEC.name,
        verdict="divergent",
        when=When(0, "loss 0.31 apart where 1e-12 is allowed", "looked for from the curves of 30 steps"),
        steps=tuple(steps),
        findings=(
            finding(0, first, "forward/activation", ACTIVATION),
            finding(22, second, "gradient/dense_1/kernel", REDUCTION),
            finding(0, first, "after/slots/momentum/dense_2/bias", replicas=(1,)),
        ),
        notes=("replayed in float64: the runs are in float32",),
        reproduced=True,
        seconds=12.3,
    )


def printed(diagnosis: Diagnosis, shown: str | None = None) -> str:
    """What the terminal shows, piped: 80 columns and no colours."""
    output = io.StringIO()
    print_diagnosis(diagnosis, Terminal(file=output, width=80), shown)
    return output.getvalue()


def line_with(text: str, words: str) -> str:
    """The only line that holds some words."""
    lines = [line for line in text.splitlines() if words in line]
    assert len(lines) == 1, (words, lines)
    return lines[0]


def test_the_terminal_says_when_where_and_why_in_this_order() -> None:
    text = printed(synthetic(), "out/diagnosis.html")
    places = [text.index(f"\n{word}") for word in ("When", "Where", "Why", "note: replayed in float64")]
    assert places == sorted(places)
    assert text.startswith("✗ divergent  digits_mlp, torch ddp x2 against tensorflow mirrored x1\n")
    assert "When   at step 0\n       loss 0.31 apart where 1e-12 is allowed\n       looked for from" in text
    assert text.endswith("diagnosed in 12 s; report: out/diagnosis.html\n")


def test_the_first_bad_node_is_marked_with_its_deviation_and_its_neighbours() -> None:
    text = printed(synthetic())
    first = line_with(text, "the first")
    assert "✗ activation  deviation 0.31, allowed 1e-12 ◀ finding 1, the first" in first
    lines = text.splitlines()
    assert "✓ flatten … dense_1  2 tensors, at most 2.2e-16" in lines[lines.index(first) - 1]
    assert "agree     forward/flatten (2.2e-16), forward/dense_1 (2.2e-16)" in text
    # Stages that agree are one line each; what only follows is no defect.
    assert line_with(text.split("step 22")[0], "sample ids").endswith("1 tensor, equal")
    assert "~ backward                        as trained off by 0.05" in text
    assert "✗ forward                         1 of 4 differ, of finding 1" in text
    assert "✗ dense_2  2 of 2 differ, of finding 2" in text
    assert "evaluation  ✓ nothing differs by itself" in text


def test_every_finding_has_its_cause_confidence_evidence_and_fix() -> None:
    text = printed(synthetic())
    for why in (ACTIVATION, REDUCTION):
        assert f"{why.text}  {why.confidence}" in text
        assert all(words in text for words in (why.cause, why.evidence, why.fix))
    assert "cause     setting:function, in torch ddp x2" in text
    assert "3. first differs here, no known cause fits\n" in text
    assert text.count("fix  ") == 2
    assert "with it   gradient/dense_1/bias, gradient/dense_2/kernel, gradient/dense_2/bias\n" in text


def test_no_line_is_cut_off_where_names_are_long() -> None:
    name = "forward/" + "/".join(f"quite_a_long_block_{number}" for number in range(12))
    seen = (TensorComparison(name, 1, 0.5, 1e-12, "row of sample 17"),)
    found = Finding(0, "forward", name, (1,), seen, ())
    text = printed(replace(synthetic(), steps=(StepComparison(0, seen, seen),), findings=(found,)))
    told = "quite_a_long_block_11  deviation 0.5, allowed 1e-12 (row of sample 17) ◀ finding 1"
    assert told in text


def test_many_bad_tensors_are_counted_and_the_findings_own_is_always_shown() -> None:
    seen = tuple(TensorComparison(f"forward/layer_{n}", None, 0.1, 1e-12) for n in range(40))
    found = Finding(0, "forward", "forward/layer_33", (), seen[33:34], seen[:0])
    text = printed(replace(synthetic(), steps=(StepComparison(0, seen, seen),), findings=(found,)))
    assert "✗ layer_33  deviation 0.1" in text
    assert "✗ layer_6 … layer_32  27 of 27 differ\n" in text


def test_parity_and_a_divergence_without_findings_are_told_apart() -> None:
    agreeing = replace(synthetic(), verdict="parity", when=None, findings=(), notes=())
    assert printed(agreeing).splitlines() == [
        "✓ parity  digits_mlp, torch ddp x2 against tensorflow mirrored x1",
        "  traced steps 0, 22 and the evaluation: 89 tensors, as trained off by at most 0.31",
        "diagnosed in 12 s",
    ]
    unknown = printed(replace(synthetic(), findings=()))
    assert "not found: no isolated tensor of the traced steps deviates" in unknown
    assert unknown.startswith("✗ divergent")


def test_markup_in_what_users_wrote_stays_text() -> None:
    why = replace(ACTIVATION, text="[bold]x[/bold] [/]", evidence="[red]", fix="[/dim]", culprit="[a]")
    found = replace(synthetic().findings[0], explanation=why)
    text = printed(replace(synthetic(), findings=(found,), notes=("[/]",), name="[green]"))
    assert all(words in text for words in ("[bold]x[/bold] [/]", "[red]", "[/dim]", "note: [/]", "[green]"))


def test_what_is_not_finite_is_said_in_words_and_written_as_json() -> None:
    seen = (
        TensorComparison("ids", 0, math.inf, 0.0, "sample 3"),
        TensorComparison("loss_sum", 0, math.nan, 1e-12),
    )
    found = Finding(0, "ids", "ids", (0,), seen[:1], ())
    diagnosis = replace(synthetic(), steps=(StepComparison(0, seen, seen),), findings=(found,))
    text = printed(diagnosis)
    assert "not equal (sample 3) ◀ finding 1" in text
    assert "deviation not a number, allowed 1e-12" in text
    data = json.loads(json.dumps(to_json(diagnosis), allow_nan=False))
    assert [entry["deviation"] for entry in data["steps"][0]["injected"]] == ["inf", "nan"]


def test_json_holds_the_whole_diagnosis(tmp_path: Path) -> None:
    diagnosis = synthetic()
    write_data(to_json(diagnosis), tmp_path / "diagnosis.json")
    data = json.loads((tmp_path / "diagnosis.json").read_text())
    assert (data["format"], data["schema_version"], data["exit_code"]) == ("parity-diagnosis", 2, 1)
    assert {field.name for field in fields(Diagnosis)} <= set(data)
    assert data["findings"][0]["explanation"] == {**asdict(ACTIVATION), "layers": []}
    assert data["findings"][2]["explanation"] is None
    assert len(data["steps"][1]["as_trained"]) == len(diagnosis.steps[1].as_trained)


def write_page(folder: Path, diagnosis: Diagnosis) -> Path:
    """The page of a diagnosis of two records without a framework."""
    records = [Run.of(SPEC, placement).write(folder / placement.framework) for placement in (TENSORFLOW, DDP)]
    write_diagnosis_html(diagnosis, Subject.of_records(*records), folder / "diagnosis.html")
    return folder / "diagnosis.html"


def test_the_page_leads_from_each_finding_to_its_cell(tmp_path: Path) -> None:
    page = Page(write_page(tmp_path, synthetic()))
    assert page.attribute("data-verdict") == ["divergent"]
    assert "They diverge at step 0" in page.text
    assert (
        "First: activation acts as if function were tanh: forward/activation. And 2 more defects" in page.text
    )
    links = [a for tag, a in page.elements if tag == "a" and "data-step" in a]
    assert [(a["data-step"], a["data-cell"]) for a in links] == [
        ("0", "layer-2:forward"),
        ("1", "layer-1:gradient"),
        ("0", "layer-3:slots"),
    ]
    there = {a.get("id") for _, a in page.elements}
    assert {str(a["href"]).removeprefix("#") for a in links} <= there
    cells = set(page.attribute("data-cell"))
    assert {a["data-cell"] for a in links} <= cells
    for words in (ACTIVATION.fix, REDUCTION.evidence, "unknown cause", "What ran on what", "only layers"):
        assert words in page.text


def test_every_tensor_of_a_step_has_a_cell(tmp_path: Path) -> None:
    page = Page(write_page(tmp_path, synthetic()))
    data = json.loads(page.json[0])
    assert set(data["cells"]) <= set(page.attribute("data-cell"))
    assert len(data["steps"]) == 3
    assert len(data["steps"][0]["as_trained"]) == 2 * len(seen_of(0, {}))
    bad = next(entry for entry in data["steps"][0]["injected"] if entry[1])
    assert bad == [data["names"].index("forward/activation"), 4, "0.31", "1e-12", None, ""]


@pytest.mark.parametrize(
    ("deviation", "level"), [(1e-12, 0), (2e-12, 1), (1e-9, 2), (5e-4, 3), (0.5, 4), (1, 5), (math.nan, 5)]
)
def test_colours_follow_a_logarithmic_scale(deviation: float, level: int) -> None:
    assert level_of(TensorComparison("forward/a", None, deviation, 1e-12)) == level


def test_the_page_lists_all_layers_of_a_defect(tmp_path: Path) -> None:
    page = Page(write_page(tmp_path, synthetic()))
    assert "2 layers" in page.text and "dense_1, dense_2 (fc in torch)" in page.text


def test_a_parity_page_has_no_findings(tmp_path: Path) -> None:
    agreeing = replace(synthetic(), verdict="parity", when=None, findings=(), steps=(), notes=("a note",))
    page = Page(write_page(tmp_path, agreeing))
    assert page.attribute("data-verdict") == ["parity"]
    assert "Nothing differs" in page.text and "a note" in page.text
    assert not {"why", "where"} & {a.get("id") for _, a in page.elements}


def test_the_page_loads_nothing_and_keeps_hostile_text_as_text(tmp_path: Path) -> None:
    why = Explanation(HOSTILE, HOSTILE, "likely", HOSTILE, HOSTILE, HOSTILE)
    spoiled = replace(synthetic().findings[0], explanation=why)
    seen = tuple(replace(one, where=HOSTILE) for one in synthetic().steps[0].injected)
    step = StepComparison(0, seen, seen)
    names = {"reference": HOSTILE, "candidate": HOSTILE, "notes": (HOSTILE,)}
    target = write_page(tmp_path, replace(synthetic(), findings=(spoiled,), steps=(step,), **names))
    page = rendered(target, tmp_path)
    assert page.attribute("data-error") == []
    assert page.attribute("data-drawn") == ["yes"]
    assert page.text.count(HOSTILE) >= 10
    assert "img" not in {tag for tag, _ in page.elements}
    for name in ("src", "action", "data", "srcset"):
        assert page.attribute(name) == []
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")


def test_a_real_browser_colours_the_layers(tmp_path: Path) -> None:
    page = rendered(write_page(tmp_path, synthetic()), tmp_path)
    assert page.attribute("data-error") == []
    level = {a["data-cell"]: a["data-level"] for tag, a in page.elements if a.get("class") == "cell"}
    assert level["layer-2:forward"] == level["stage-forward"] == "4"
    assert level["layer-3:slots"] == "2"
    assert level["layer-3:forward"] == level["stage-backward"] == "0"
    assert level["layer-2:gradient"] == ""  # an activation has no parameters
    marked = {a["data-cell"]: a["data-finding"] for _, a in page.elements if "data-finding" in a}
    assert marked == {"layer-2:forward": "1", "layer-3:slots": "3"}


def clicked(target: Path, folder: Path, *selectors: str) -> Page:
    """The page after clicks, in a copy that lets the clicking script run."""
    text = target.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    clicks = "".join(f"document.querySelector({json.dumps(selector)}).click();" for selector in selectors)
    copy = folder / "clicked.html"
    copy.write_text(text.replace("</body>", f"<script>{clicks}</script></body>"), encoding="utf-8")
    return rendered(copy, folder)


def test_switches_show_another_step_view_and_replica(tmp_path: Path) -> None:
    target = write_page(tmp_path, synthetic())
    page = clicked(target, tmp_path, '[data-value="as_trained"]', '[data-view="replica"][data-value="1"]')
    level = {a["data-cell"]: a["data-level"] for tag, a in page.elements if a.get("class") == "cell"}
    assert level["layer-3:update"] == level["stage-backward"] == "4"  # an error is carried on
    assert level["stage-ids"] == level["stage-before"] == "0"
    page = clicked(target, tmp_path, '#finding-2 a[data-cell="layer-1:gradient"]', "#only")
    assert "gradient/dense_1/kernel" in page.text.split("Layer by layer")[1]  # its tensors are listed
    marked = {a["data-cell"]: a["data-finding"] for _, a in page.elements if "data-finding" in a}
    assert marked == {"layer-1:gradient": "2"}
    pressed = [
        a["data-value"] for _, a in page.elements if a.get("aria-pressed") == "true" and "data-view" in a
    ]
    assert pressed == ["1", "injected", "all"]
    hidden = [a["id"] for tag, a in page.elements if tag == "tr" and "hidden" in a]
    assert hidden == ["layer-0"]


def test_the_cause_shown_in_the_documentation_is_in_the_catalogue() -> None:
    shown = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "explanation" / "diagnosis.md").read_text(), re.DOTALL
    )
    assert len(shown) == 1
    catalogue = (ROOT / "common" / "diagnosis" / "explain" / "causes.py").read_text()
    plain = ["".join(text.split()).replace(",)", ")") for text in (shown[0], catalogue)]
    assert plain[0] in plain[1]
