"""No test talks to a network: the packages are told so before they are imported."""

import os

os.environ.update(
    DO_NOT_TRACK="true",
    HF_HUB_OFFLINE="1",
    MLFLOW_ALLOW_FILE_STORE="true",
    MLFLOW_DISABLE_TELEMETRY="true",
    WANDB_ERROR_REPORTING="false",
    WANDB_SILENT="true",
)
