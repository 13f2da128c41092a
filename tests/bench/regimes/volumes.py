"""A user's own data of volumes, one file each, read when a batch needs them; ``READ`` notes which."""

import torch
import torch.nn.functional as F

from madamoo.bench import Data, LazySplit, Metric, Profile, Supervised

READ = []


class Volumes(Supervised):
    name = "medical/volumes"
    objectives = ("inside", "age")
    kinds = ("classification", "regression")
    metrics = (Metric("age_error", False),)
    profiles = {"cpu": Profile(epochs=2, batch=3, lr=1e-2, model="mlp:depth=1:width=4", threads=1)}
    files = (("volumes",),)
    layout = "  volumes/<k>.pt"

    def load(self, root, profile, seed):
        (folder,) = self.locate(root)
        files = sorted(folder.glob("*.pt"))

        def read(file):
            READ.append(file.name)
            volume, age = torch.load(file, weights_only=True)
            return volume, ((volume > 0).float(), age)

        parts = files[:10], files[10:14], files[14:]
        return Data(*(LazySplit(len(part), lambda k, part=part: read(part[k])) for part in parts))

    def shape(self, data):
        return (2, 2, 2), (8, 1)

    def criteria(self, outputs, targets):
        inside = F.binary_cross_entropy_with_logits(outputs[0], targets[0].flatten(1))
        return [inside, F.mse_loss(outputs[1].squeeze(1), targets[1])]

    def tally(self, outputs, targets):
        errors = (outputs[1].squeeze(1) - targets[1]).abs()
        return {"error": errors.sum(), "count": torch.tensor(len(errors))}

    def summarise(self, tally):
        return {"age_error": float(tally["error"] / tally["count"])}


BENCHMARKS = {"medical/volumes": Volumes}
