"""Settings: the paper's defaults, files and overrides, typos answered."""

import pytest

from wpnode_ext import WPNODE
from wpnode_ext.settings.config import TrainConfig, paper_config, resolve
from wpnode_ext.settings.text import dotted_names, from_dict, load, to_dict


def test_settings_are_taken_from_dicts_as_from_the_command() -> None:
    asked = {"weak.ell": 40, "weak": {"p": 6}, "lam": 1, "field.hidden": (8, 8)}
    config = WPNODE(config=asked).config
    assert (config.weak.ell, config.weak.p, config.weak.q) == (40, 6, 0)
    assert config.lam == 1.0 and config.field.hidden == [8, 8]
    words = ["weak.ell=40", "weak.p=6", "lam=1", "field.hidden=[8,8]"]
    assert config == load(TrainConfig, None, words)
    # Arguments replace what the settings say.
    assert WPNODE(config=asked, ell=20).config.weak.ell == 20


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"weak.el": 4}, ValueError, "`weak.el` is not a setting.*`weak.ell`"),
        ({"weak": {"el": 4}}, ValueError, "`weak.el` is not a setting.*`weak.ell`"),
        ({"weak": 4}, TypeError, "`weak` must be a dict of settings; got 4"),
        ({"lam.x": 4}, ValueError, "`lam` has no settings below it"),
        ({"lam": "much"}, TypeError, "`lam` must be float; got 'much'"),
        ({"refine": "yes"}, TypeError, "`refine` must be bool or None; got 'yes'"),
        ({"method": "best"}, ValueError, "`method` must be one of auto, wp.*'best'"),
        ({"weak.ell": True}, TypeError, "`weak.ell` must be int; got True"),
        (["weak.ell=40"], TypeError, "`config` must be a TrainConfig, or a dict"),
    ],
)
def test_wrong_settings_are_answered_with_the_rule(config, error, words) -> None:
    with pytest.raises(error, match=words):
        WPNODE(config=config)


def test_presets_hold_the_values_of_the_paper_for_each_system() -> None:
    found = {
        (name, method): paper_config(name, method)
        for name in ("l63", "l96", "ks")
        for method in ("strong", "weak", "wp")
    }
    table = {  # p, ell, q, lambda, hidden layers, T of strong and wp
        "l63": (8, 50, 2, 0.5, [200, 200], 25, 2),
        "l96": (8, 80, 2, 0.5, [200, 200], 25, 2),
        "ks": (16, 60, 2, 1.0, [400, 400], 25, 2),
    }
    for (name, method), config in found.items():
        weak, optim = config.weak, config.optim
        strong, penalty = table[name][5:]
        assert (weak.p, weak.ell, weak.q, config.lam) == table[name][:4]
        assert (config.field.kind, config.field.hidden) == ("mlp", table[name][4])
        assert config.field.activation == "gelu"
        assert config.strong.window == (strong if method == "strong" else penalty)
        assert (config.strong.solver, config.strong.rtol) == ("dopri5", 1e-6)
        slow = method != "strong"
        assert optim.patience == (200 if slow else 10)
        assert optim.min_delta == (1e-7 if slow else 1e-6)
        assert optim.epochs == (20_000 if slow else 300)
        assert (optim.name, optim.lr, optim.min_lr) == ("adam", 2e-3, 1e-6)
        assert (optim.plateau_factor, optim.plateau_threshold) == (0.5, 1e-4)
        assert 0 < optim.plateau_patience <= optim.patience
    assert paper_config("ks", "strong", window=50).strong.window == 50
    with pytest.raises(ValueError, match="`method` must be 'wp', 'weak' or 'strong'"):
        paper_config("l63", "auto")


@pytest.mark.parametrize(
    ("method", "window", "epochs", "patience", "min_delta"),
    [
        ("strong", 25, 300, 10, 1e-6),
        ("weak", 2, 20_000, 200, 1e-7),
        ("wp", 2, 20_000, 200, 1e-7),
    ],
)
def test_each_method_has_the_settings_the_paper_lists(
    method, window, epochs, patience, min_delta
) -> None:
    config = resolve(TrainConfig(method=method))
    assert config.refine is False
    assert resolve(TrainConfig(method=method, refine=True)).refine is True
    assert resolve(TrainConfig(method="closed_form")).refine is True
    optim = config.optim
    assert config.strong.window == window
    assert config.strong.stride == (1 if method == "strong" else 2)
    assert (optim.epochs, optim.patience, optim.min_delta) == (
        epochs,
        patience,
        min_delta,
    )
    assert (optim.lr, optim.batch_size, optim.name) == (2e-3, 2048, "adam")
    assert (optim.plateau_factor, optim.min_lr) == (0.5, 1e-6)
    assert (config.weak.p, config.weak.ell, config.weak.q, config.lam) == (
        8,
        50,
        2,
        0.5,
    )
    strong = config.strong
    assert (strong.solver, strong.rtol, strong.atol) == ("dopri5", 1e-6, 1e-6)


def test_settings_of_the_user_are_not_replaced() -> None:
    config = load(
        TrainConfig, None, ["method=strong", "strong.window=6", "optim.epochs=2"]
    )
    config = resolve(config)
    assert (config.strong.window, config.optim.epochs, config.optim.patience) == (
        6,
        2,
        10,
    )


def test_files_are_merged_over_defaults_and_overrides_over_files(
    tmp_path,
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("method: weak\nweak: {ell: 20, p: 4}\nfield: {hidden: [8, 8]}\n")
    config = load(TrainConfig, path, ["weak.p=6", "optim.clip=1"])
    assert (config.method, config.weak.ell, config.weak.p) == ("weak", 20, 6)
    assert config.field.hidden == [8, 8] and config.optim.clip == 1.0
    assert config.weak.q == 0 and resolve(config).weak.q == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("weak.el=20", "`weak.el` is not a setting. Did you mean `weak.ell`?"),
        ("ell=20", "Did you mean `weak.ell`?"),
        ("metod=weak", "Did you mean `method`?"),
        ("optim.lerning_rate=1", "`optim.lerning_rate` is not a setting."),
        ("method=wek", "`method`: Invalid value 'wek'"),
        ("optim.lr=fast", "`optim.lr`: Value 'fast'"),
        ("weak.ell", "overrides must read key=value; got 'weak.ell'"),
    ],
)
def test_mistakes_are_answered_with_the_nearest_right_key(override, message) -> None:
    with pytest.raises(ValueError) as caught:
        load(TrainConfig, None, [override])
    assert message in str(caught.value)


def test_mistakes_in_a_file_name_the_file(tmp_path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("weak:\n  elll: 20\n")
    with pytest.raises(ValueError, match=r"run\.yaml: `weak\.elll`.*`weak\.ell`"):
        load(TrainConfig, path)
    path.write_text("- 1\n- 2\n")
    with pytest.raises(ValueError, match="expected `key: value`"):
        load(TrainConfig, path)


def test_settings_survive_the_way_through_builtin_types() -> None:
    config = load(TrainConfig, None, ["weak.ell=12", "field.hidden=[3]", "seed=7"])
    assert from_dict(TrainConfig, to_dict(config)) == config
    with pytest.raises(KeyError, match="is not a setting"):
        from_dict(TrainConfig, {"sed": 1})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optim.batch_size=0"], "`optim.batch_size` must be >= 1"),
        (["optim.epochs=-1"], "`optim.epochs` must be >= 1"),
        (["optim.lr=nan"], "`optim.lr` must be positive and finite"),
        (["lam=nan"], "`lam` must be >= 0"),
        (["validation.starts=-1"], "`validation.starts` must be >= 1"),
        (["validation.horizon=0"], "`validation.horizon` must be >= 1"),
        (["seed=99999999999999999999"], "`seed` must fit into 64 bits"),
        (["validation.fraction=1.0"], r"`validation.fraction` must lie in \[0, 1\)"),
    ],
)
def test_values_out_of_range_are_refused(overrides, message) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(load(TrainConfig, None, overrides))
    with pytest.raises(ValueError, match="`method` must be one of"):
        resolve(TrainConfig(method="magic"))  # type: ignore[arg-type]


def test_dotted_names_reach_every_leaf() -> None:
    names = dotted_names(TrainConfig)
    assert {"method", "weak", "weak.ell", "optim.plateau_patience"} <= set(names)
