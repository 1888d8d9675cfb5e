"""Model packages: what a policy is on disk, and how it becomes something that answers batches.

Beside the hot path: `package` reads the manifest (no torch), `load` turns a package into a `Model` on a
device, and the predictor's thread calls `Model.predict` once per batch. Nothing here unpickles anything.
"""

from workers.models.errors import ModelError
from workers.models.load import load_model
from workers.models.model import Model
from workers.models.package import Manifest, read_manifest

__all__ = ["Manifest", "Model", "ModelError", "load_model", "read_manifest"]
