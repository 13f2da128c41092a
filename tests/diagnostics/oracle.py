"""The diagnosis by brute force: every loss differentiated by itself, whole vectors in numpy, double sums."""

import numpy as np
import torch


def flat(tensors):
    return np.concatenate([t.detach().double().numpy().ravel() for t in tensors])


class Oracle:
    """Follows a run of ``Net`` step by step: ``look`` between backward and step, ``row`` after the step."""

    def __init__(self, net, opt, heads_weigh_one=False, pairs=None, beta2=0.999, eps=1e-8):
        self.net, self.opt, self.beta2, self.eps = net, opt, beta2, eps
        self.params = list(net.parameters())
        self.heads_weigh_one = heads_weigh_one
        self.pairs = pairs  # a function of the step; None: all
        self.count = len(net.heads)
        self.F, self.n = {}, {}
        self.v, self.t = 0.0, 0

    def look(self, losses):
        """``losses`` are those of the step, or one list for each micro-batch; their graphs are the oracle's own."""
        batches = losses if isinstance(losses[0], list) else [losses]
        self.losses = np.array([sum(batch[i].item() for batch in batches) for i in range(self.count)])
        self.G = np.array([sum(self._gradient(batch[i]) for batch in batches) for i in range(self.count)])
        self.weights = self.opt.weights.double().numpy()
        self.W = np.repeat(self.weights[:, None], self.G.shape[1], axis=1)
        if self.heads_weigh_one:
            trunk = {id(p) for p in self.net.trunk.parameters()}
            head = np.concatenate([np.full(p.numel(), id(p) not in trunk) for p in self.params])
            self.W[:, head] = 1.0
        self.d = (self.W * self.G).sum(0)
        self.written = flat([p.grad for p in self.params])
        self.before = flat(self.params)
        # Adam's second moment of d, and the averages F_ij with this step in them
        self.v = self.beta2 * self.v + (1 - self.beta2) * self.d**2
        everything = [(i, j) for i in range(self.count) for j in range(i, self.count)]
        for i, j in everything if self.pairs is None else self.pairs(self.t):
            self.F[i, j] = self.beta2 * self.F.get((i, j), 0.0) + (1 - self.beta2) * self.G[i] * self.G[j]
            self.n[i, j] = self.n.get((i, j), 0) + 1
        self.t += 1

    def _gradient(self, loss):
        rows = torch.autograd.grad(loss, self.params, retain_graph=True, allow_unused=True)
        return flat([torch.zeros_like(p) if g is None else g for p, g in zip(self.params, rows, strict=True)])

    @property
    def v_hat(self):
        return self.v / (1 - self.beta2**self.t)

    @property
    def curvature(self):
        C = 0.0
        for (i, j), F in self.F.items():
            C = C + (1 if i == j else 2) * self.W[i] * self.W[j] * F / (1 - self.beta2 ** self.n[i, j])
        return C

    def row(self, adam=True, preference=None, curvature=None, metric_eps=1e-16):
        """``preference`` is d / M under the metric, ``curvature`` its C; both None if there is no metric."""
        G, d = self.G, self.d
        moved = flat(self.params) - self.before
        images = {
            "euclidean": d,
            "adam": d / (np.sqrt(self.v_hat) + self.eps) if adam else None,
            "preference": preference,
            "realised": -moved,
        }
        norms = np.sqrt((G**2).sum(1))
        cosines = [[G[i] @ G[j] / norms[i] / norms[j] for j in range(self.count)] for i in range(self.count)]
        upper = [cosines[i][j] for i in range(self.count) for j in range(i + 1, self.count)]
        effects = {m: None if u is None else np.array([g @ u for g in G]) for m, u in images.items()}
        aligned = effects["euclidean"]
        alive = d != 0
        metrics = {m: None if images[m] is None else d[alive] / images[m][alive] for m in ("adam", "preference")}
        P = np.array([(g * d)[g * d > 0].sum() for g in G])
        N = np.array([-(g * d)[g * d < 0].sum() for g in G])
        apart = None
        if adam and curvature is not None:
            both = (self.v_hat > 0) & (curvature > 0)
            a, b = np.log(self.v_hat[both]), np.log(curvature[both])
            apart = {"log_distance": np.abs(a - b).mean(), "log_correlation": np.corrcoef(a, b)[0, 1]}
        return {
            "losses": self.losses,
            "weights": self.weights,
            "norms": norms,
            "direction_norm": np.sqrt((d**2).sum()),
            "cosines": cosines,
            "conflict_rate": np.mean(np.array(upper) < 0),
            "effects": effects,
            "alignments": {
                m: None if e is None else e / norms / np.sqrt((images[m] ** 2).sum()) for m, e in effects.items()
            },
            "flips": {
                m: None if e is None else [e_i < 0 if a > 0 else None for e_i, a in zip(e, aligned, strict=True)]
                for m, e in effects.items()
                if m != "euclidean"
            },
            "positive": P,
            "negative": N,
            "threshold": [p / n if n > 0 else None for p, n in zip(P, N, strict=True)],
            "condition": {m: None if M is None else M.max() / M.min() for m, M in metrics.items()},
            "spread": {
                m: None if M is None else np.percentile(M, 99) / np.percentile(M, 1) for m, M in metrics.items()
            },
            "predicted": G @ moved,
            "marginalisation": apart,
            "floored": None if curvature is None else np.mean((curvature <= (1 - self.beta2) * d**2)[alive]),
            "below_eps": None if curvature is None else np.mean((curvature < metric_eps)[alive]),
        }


def compare(found, wanted, rtol=1e-9, path=""):
    """Every entry of ``wanted`` is in ``found``; what is by name there may be a vector here."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            compare(found[key], value, rtol, f"{path}/{key}")
    elif wanted is None or isinstance(wanted, bool | np.bool_ | str):
        assert found == wanted and (found is None) == (wanted is None), path
    elif isinstance(wanted, list | np.ndarray):
        listed = list(found.values()) if isinstance(found, dict) else found
        assert len(listed) == len(wanted), path
        for k, (f, w) in enumerate(zip(listed, wanted, strict=True)):
            compare(f, w, rtol, f"{path}/{k}")
    else:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-12, err_msg=path)
