"""Medical images: lesion segmentation and brain-MRI super-resolution, on public data or on a user's own."""
