"""Medical images: objectives, scores, perceptual distances, degradation, networks, and files read as they are needed.

MONAI gives the networks, some of the losses and some of the scores (``pip install 'madamoo[medical]'``). They are
functions on tensors, for a training loop of your own. The benchmarks ``isic``, ``ph2``, ``oasis`` and ``brain-t1`` of
the lab, and its commands for images of your own, are made of them.
"""

from ._degrade import Range, degrade, enlarge, intensity_range, reduce_volume
from ._files import (
    IMAGES,
    VOLUMES,
    BadFile,
    Pair,
    Volume,
    find_files,
    find_pairs,
    find_volumes,
    image_size,
    read_image,
    read_mask,
    read_volume,
    slice_size,
    stem,
    volume_shape,
)
from ._loading import Sample, Samples, WorkerDied, split_by_name
from ._losses import (
    SEGMENTATION,
    SUPER_RESOLUTION,
    cross_entropy,
    edge_loss,
    l1_loss,
    laplacian_loss,
    segmentation_losses,
    segmentation_names,
    soft_dice,
    spectrum_loss,
    ssim_loss,
    super_resolution_losses,
)
from ._networks import EncoderDecoder, swin_unetr, unet
from ._perceptual import DISTS, LPIPS, Features
from ._scores import dice_score, hd95, mae, psnr, ssim

__all__ = [
    "DISTS",
    "IMAGES",
    "LPIPS",
    "SEGMENTATION",
    "SUPER_RESOLUTION",
    "VOLUMES",
    "BadFile",
    "EncoderDecoder",
    "Features",
    "Pair",
    "Range",
    "Sample",
    "Samples",
    "Volume",
    "WorkerDied",
    "cross_entropy",
    "degrade",
    "dice_score",
    "edge_loss",
    "enlarge",
    "find_files",
    "find_pairs",
    "find_volumes",
    "hd95",
    "image_size",
    "intensity_range",
    "l1_loss",
    "laplacian_loss",
    "mae",
    "psnr",
    "read_image",
    "read_mask",
    "read_volume",
    "reduce_volume",
    "segmentation_losses",
    "segmentation_names",
    "slice_size",
    "soft_dice",
    "spectrum_loss",
    "split_by_name",
    "ssim",
    "ssim_loss",
    "stem",
    "super_resolution_losses",
    "swin_unetr",
    "unet",
    "volume_shape",
]
