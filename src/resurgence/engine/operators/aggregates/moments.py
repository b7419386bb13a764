"""Variance, covariance, correlation and regression as mergeable partials.

A partial is a struct of count, means and sums of products of deviations. Two partials are merged by
the formula that Spark's own functions use between tasks, so the result differs from theirs at most
in the last digits. The mean of equal values is that value, not a quotient, so that zero deviations
stay zero: several functions are null in exactly that case.
"""

from __future__ import annotations

VARIANCES = {
    "var_pop": "CASE WHEN {p}.n > 0 THEN {p}.m2 / {p}.n END",
    "var_samp": "CASE WHEN {p}.n > 1 THEN {p}.m2 / ({p}.n - 1) END",
    "stddev_pop": "CASE WHEN {p}.n > 0 THEN sqrt({p}.m2 / {p}.n) END",
    "stddev_samp": "CASE WHEN {p}.n > 1 THEN sqrt({p}.m2 / ({p}.n - 1)) END",
}
"""Functions of one value, over the partial `p`."""

_SPREAD = "{p}.n > 0 AND {p}.x2 <> 0"
_SLOPE = "{p}.xy / {p}.x2"
COVARIANCES = {
    "covar_pop": "CASE WHEN {p}.n > 0 THEN {p}.xy / {p}.n END",
    "covar_samp": "CASE WHEN {p}.n > 1 THEN {p}.xy / ({p}.n - 1) END",
    "corr": f"CASE WHEN {_SPREAD} AND {{p}}.y2 <> 0 THEN {{p}}.xy / sqrt({{p}}.x2 * {{p}}.y2) END",
    "regr_sxx": "CASE WHEN {p}.n > 0 THEN {p}.x2 END",
    "regr_syy": "CASE WHEN {p}.n > 0 THEN {p}.y2 END",
    "regr_sxy": "CASE WHEN {p}.n > 0 THEN {p}.xy END",
    "regr_slope": f"CASE WHEN {_SPREAD} THEN {_SLOPE} END",
    "regr_intercept": f"CASE WHEN {_SPREAD} THEN {{p}}.y - {_SLOPE} * {{p}}.x END",
    "regr_r2": f"CASE WHEN {_SPREAD} THEN CASE WHEN {{p}}.y2 = 0 THEN 1D"
    " ELSE {p}.xy * {p}.xy / ({p}.x2 * {p}.y2) END END",
}
"""Functions of two values, y and x, over the partial `p`."""


def variance_make(value: str, chosen: str) -> str:
    """Return SQL for the partial of some rows. `chosen` is a FILTER clause, or empty."""
    return (
        f"named_struct('n', CAST(count({value}){chosen} AS DOUBLE), 'mean', {_mean(value, chosen)},"
        f" 'm2', {_product(f'var_pop({value})', value, chosen)})"
    )


_DELTA = "({b}.mean - {a}.mean)"
_VARIANCE = {
    "mean": f"{{a}}.mean + {_DELTA} * {{b}}.n / ({{a}}.n + {{b}}.n)",
    "m2": f"{{a}}.m2 + {{b}}.m2 + {_DELTA} * {_DELTA} * {{a}}.n * {{b}}.n / ({{a}}.n + {{b}}.n)",
}
_X, _Y, _SHARE = "({b}.x - {a}.x)", "({b}.y - {a}.y)", "{a}.n * {b}.n / ({a}.n + {b}.n)"
_COVARIANCE = {
    "x": f"{{a}}.x + {_X} * {{b}}.n / ({{a}}.n + {{b}}.n)",
    "y": f"{{a}}.y + {_Y} * {{b}}.n / ({{a}}.n + {{b}}.n)",
    "xy": f"{{a}}.xy + {{b}}.xy + {_X} * {_Y} * {_SHARE}",
    "x2": f"{{a}}.x2 + {{b}}.x2 + {_X} * {_X} * {_SHARE}",
    "y2": f"{{a}}.y2 + {{b}}.y2 + {_Y} * {_Y} * {_SHARE}",
}
"""The fields of two partials, `{a}` and `{b}`, merged."""


def variance_merge(name: str) -> str:
    """Return SQL that merges many partials into one."""
    return _fold(name, _VARIANCE)


def variance_plus() -> str:
    """Return SQL that merges two partials, `{a}` and `{b}`."""
    return _plus(_VARIANCE)


def covariance_make(y: str, x: str, chosen: str) -> str:
    """Return SQL for the partial of some rows. `chosen` is a FILTER clause that omits nulls of
    both.
    """
    return (
        f"named_struct('n', CAST(count({x}){chosen} AS DOUBLE),"
        f" 'x', {_mean(x, chosen)}, 'y', {_mean(y, chosen)},"
        f" 'xy', {_product(f'covar_pop({y}, {x})', x, chosen)},"
        f" 'x2', {_product(f'var_pop({x})', x, chosen)},"
        f" 'y2', {_product(f'var_pop({y})', y, chosen)})"
    )


def covariance_merge(name: str) -> str:
    """Return SQL that merges many partials into one."""
    return _fold(name, _COVARIANCE)


def covariance_plus() -> str:
    """Return SQL that merges two partials, `{a}` and `{b}`."""
    return _plus(_COVARIANCE)


def _mean(value: str, chosen: str) -> str:
    least, greatest = f"min({value}){chosen}", f"max({value}){chosen}"
    mean = f"CASE WHEN {least} = {greatest} THEN {least} ELSE avg({value}){chosen} END"
    return f"coalesce({mean}, 0D)"


def _product(moment: str, value: str, chosen: str) -> str:
    return f"coalesce({moment}{chosen} * count({value}){chosen}, 0D)"


def _fold(name: str, fields: dict[str, str]) -> str:
    zero = "named_struct('n', 0D, " + ", ".join(f"'{each}', 0D" for each in fields) + ")"
    step = _plus(fields).format(a="a", b="b")
    return f"aggregate(collect_list({name}), {zero}, (a, b) -> {step})"


def _plus(fields: dict[str, str]) -> str:
    merged = ", ".join(f"'{field}', {sql}" for field, sql in fields.items())
    return (
        "CASE WHEN {b}.n = 0 THEN {a} WHEN {a}.n = 0 THEN {b}"
        f" ELSE named_struct('n', {{a}}.n + {{b}}.n, {merged}) END"
    )
