"""Reads the same pictures with torchvision's DataLoader or DALI's CPU pipeline; prints the seconds of the pictures after the first
ones, which warm up."""
import argparse
import time


def torchvision(a):
    import torch
    from torchvision import datasets, transforms
    torch.set_num_threads(1)
    data = datasets.ImageFolder(a.data + "/train", transforms.Compose([
        transforms.RandomResizedCrop(a.size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize([.485, .456, .406], [.229, .224, .225])]))
    order = [i % len(data) for i in range(a.warm + a.pictures)]
    loader = torch.utils.data.DataLoader(data, batch_size=a.batch, sampler=order, num_workers=a.threads, drop_last=True)
    yield from (len(labels) for _, labels in loader)


def dali(a):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=a.batch, num_threads=a.threads, device_id=None)
    def pipeline():
        files, labels = fn.readers.file(file_root=a.data + "/train", random_shuffle=True)
        pictures = fn.decoders.image_random_crop(files, random_area=[0.08, 1], random_aspect_ratio=[3 / 4, 4 / 3])
        pictures = fn.resize(pictures, resize_x=a.size, resize_y=a.size)
        return fn.crop_mirror_normalize(pictures, mirror=fn.random.coin_flip(), dtype=types.FLOAT, output_layout="CHW",
                                        mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]), labels

    made = pipeline()
    made.build()
    for _ in range((a.warm + a.pictures) // a.batch):
        made.run()
        yield a.batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["torchvision", "dali"])
    parser.add_argument("--data")
    for name in ("size", "threads", "pictures", "batch", "warm"):
        parser.add_argument("--" + name, type=int)
    a = parser.parse_args()
    seen, began = 0, None
    for count in {"torchvision": torchvision, "dali": dali}[a.kind](a):
        seen += count
        if began is None and seen >= a.warm:
            began, first = time.perf_counter(), seen
    print((time.perf_counter() - began) / (seen - first) * a.pictures)


if __name__ == "__main__":
    main()
