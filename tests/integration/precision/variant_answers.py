"""The answers of an artifact's variants, each in a plain session at its level.

Run as a program, `ARTIFACT INPUTS ANSWERS` (paths), it is run by an emulated CPU as well: nothing
looks at the features that a variant requires.  INPUTS is a pickled list of inputs by name, ANSWERS
the pickled outputs of each, by variant.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import onnxruntime as ort

LEVELS = {
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
WEIGHTS = "session.model_external_initializers_file_folder_path"


def answers(artifact: Path, inputs: list[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    payload = artifact / "payload"
    found = {}
    for variant in json.loads((payload / "aotc.json").read_text())["variants"]:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = LEVELS[variant["session"]["optimization"]]
        if weights := variant.get("weights"):
            options.add_session_config_entry(WEIGHTS, str((payload / weights).resolve()))
        model = (payload / variant["model"]).read_bytes()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found[variant["name"]] = [session.run(None, each) for each in inputs]
    return found


if __name__ == "__main__":
    asked, given, told = map(Path, sys.argv[1:])
    told.write_bytes(pickle.dumps(answers(asked, pickle.loads(given.read_bytes()))))
