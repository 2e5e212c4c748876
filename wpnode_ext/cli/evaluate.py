"""``wpnode evaluate``: how long do forecasts hold?"""

import argparse
import json

from .common import add_command, add_data_arguments, print_table, read_data, read_model


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "evaluate",
        "judge a trained model against a reference",
        "Forecasts start at random samples of the reference, which should not have "
        "been trained\non, and are compared with what follows there. Clean references "
        "give the paper's\nnumbers; on noisy ones a perfect model is limited, too.",
        "example: wpnode evaluate runs/first l63_test.npz --lyapunov 0.91",
    )
    parser.add_argument("model", help="run folder or model file")
    add_data_arguments(parser)
    parser.add_argument("--lyapunov", type=float, help="maximal exponent of the system")
    parser.add_argument("--threshold", type=float, default=0.3, help="valid error")
    parser.add_argument("--starts", type=int, default=30, help="number of forecasts")
    parser.add_argument("--horizon", type=float, help="time to forecast")
    parser.add_argument("--solver", default="dopri5", help="as in torchdiffeq")
    parser.add_argument("--seed", type=int, default=0, help="of the starts")
    parser.add_argument("--json", action="store_true", help="numbers as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    model = read_model(arguments.model)
    arguments.dt = arguments.dt or (None if arguments.time else model.dt_)
    series = read_data(arguments)
    if series.dt is None or series.n_series > 1 or series.mask is not None:
        raise ValueError(
            "the reference must be one series without gaps at equal distances."
        )
    result = model.evaluate(
        series.v,
        series.dt,
        lyapunov_exponent=arguments.lyapunov,
        threshold=arguments.threshold,
        starts=arguments.starts,
        horizon=arguments.horizon,
        method=arguments.solver,
        seed=arguments.seed,
    )
    if arguments.json:
        print(json.dumps(result.summary(), indent=2))
    else:
        print_table(result.rows())
