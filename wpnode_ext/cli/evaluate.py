"""``wpnode evaluate``: how long do forecasts hold, and is their climate right?"""

import argparse
import json
import math
from typing import Any

from .common import (
    add_command,
    add_data_arguments,
    data_config,
    print_table,
    read_model,
    say,
)
from .judge import (
    add_judge_arguments,
    held_out_reference,
    judge,
    read_run,
    reference_from_file,
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "evaluate",
        "judge a trained model against a reference",
        "Forecasts start at random samples of the reference, which should not have "
        "been trained\non, and are compared with what follows there. Clean references "
        "give the paper's\nnumbers; on noisy ones a perfect model is limited, too. "
        "Without a reference the filtered\ndata held out of the run are taken. Long "
        "forecasts tell whether the model visits the\nright states as often as it "
        "should; residuals of a run's own data, whether it explains\nthem up to noise.",
        "example: wpnode evaluate runs/first l63_test.npz --lyapunov 0.91",
    )
    parser.add_argument("model", help="run folder or model file")
    add_data_arguments(parser, optional=True)
    add_judge_arguments(parser)
    parser.add_argument("--json", action="store_true", help="numbers as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    model = read_model(arguments.model)
    config, observations = read_run(arguments.model)
    if arguments.data is not None:
        where = data_config(arguments)
        reference, note = reference_from_file(where, model, arguments.model)
    elif config is not None and observations is not None:
        reference, note = held_out_reference(config, observations, model)
    else:
        raise ValueError(
            "give a reference file: the model has no run folder whose data are there."
        )
    found = judge(arguments, model, reference, note, observations)
    parts = {
        "forecasts": found.evaluation,
        "climate": found.climate,
        "goodness_of_fit": found.fit,
    }
    if arguments.json:
        numbers: dict[str, Any] = {"note": found.note}
        for name, part in parts.items():
            numbers[name] = None if part is None else _plain(part.summary())
        print(json.dumps(numbers, indent=2))
        return
    titles = {
        "forecasts": "Forecasts",
        "climate": "Climate of long forecasts",
        "goodness_of_fit": "Fit to the data the run was trained on",
    }
    say(found.note)
    for name, part in parts.items():
        if part is not None:
            print(f"\n{titles[name]}")
            print_table(part.rows())


def _plain(values: Any) -> Any:
    """JSON has no infinity and no NaN: they become null."""
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return values if not isinstance(values, float) or math.isfinite(values) else None
