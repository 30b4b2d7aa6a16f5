"""The Classification: what pages and figures read of a classification run, beside the Verification of fields.

`classification.nc` of a run:

    coordinates   entry (str: a method's key, with ":variant" where there are several: "director", "director:no_noise",
                  "director:constant_noise", "director:no_matching", "stochastic_attention:16"), entry_title (entry; for people), class
                  (str), case (int id), against (str: entries that the others are compared with), ood (str), corruption (str), severity
                  (int, 0 = untouched), step (int, 1 … T), path (int), example (int case ids that are shown one by one)
    per entry     <score>, <score>_low, <score>_high (entry): accuracy, mcc, nll, brier_multiclass, ece, ece_adaptive, aurc,
                  auroc_failure, fpr95_failure, brier_mcb, brier_dsc, brier_unc; 95 % bootstrap over cases. attrs: title, symbol, units,
                  better, perfect, estimator, reference
    compared      <score>_difference, _difference_low, _difference_high (entry, against): value less that of `against`, paired bootstrap
    detection     auroc_ood_max_softmax, aupr_ood_max_softmax, fpr95_ood_max_softmax, auroc_ood_entropy, aupr_ood_entropy,
                  fpr95_ood_entropy, each with _low, _high (entry, ood) outside_confidence (entry, ood, outside) float32: greatest
                  probability of each outside example, NaN beyond a set's end
    robustness    accuracy_corrupted, ece_corrupted, nll_corrupted (entry, corruption, severity); severity 0 repeats the clean value;
                  corruption_title (corruption) for people
    cases         spread (entry, case): root of the summed variance of the members' class probabilities; probability (entry, case,
                  class) float32: mean of the members' softmaxes; observed (case) int: position in class
    examples      path_probability (entry, example, path, class) float32, NaN beyond an entry's members; example_image (example, row,
                  column, channel) uint8, or example_text (example) str
    cost          parameters (entry) int, members (entry) int, fit_seconds (entry; NaN: the shipped state was used), milliseconds
                  (entry): inference of one example with all members; memory_bytes (entry): 4 × parameters
    path          only where a DIRECTOR entry is there: step_spread (entry, step): root mean square over examples, tokens and channels
                  of the sd over paths of x_t, over the sd of x_t over examples; step_correlation (entry, step, step_other): correlation
                  of the paths' deviations at two steps; step_error (entry, step): root mean square of μ − m over that of m − x,
                  teacher-forced; step_sigma (entry, step): mean σ; step_sigma_variation (entry, step): sd over examples of an example's
                  mean σ, over that mean: how far σ depends on the input; spread_error_auroc (entry), _low, _high: how well the spread
                  of the paths' probabilities of an example tells its mistakes
    attrs         task ("classification"), key, command, spec (JSON), members, seed, cases, title, version, teacher (entry of the frozen
                  model: "deterministic"), checkpoint_revision, data, kind ("images" or "text"), bootstrap (replicates), ece_rule, notes
                  (JSON list), nu (chosen ν of stochastic attention), nu_rule
"""

from pathlib import Path
from typing import TYPE_CHECKING

from engine.runs.verification import open_result

if TYPE_CHECKING:
    import xarray as xr


def open_classification(folder: Path) -> "xr.Dataset":
    """`classification.nc` of a run's folder, in memory."""
    return open_result(folder, "classification")
