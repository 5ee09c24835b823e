"""Writes what EC2 says of its instance types into the text files beside this script.

`cargo xtask ec2-data` installs moto, fetches the Go module of Karpenter's AWS provider and runs this with Python's
standard library alone. Only facts are taken: figures that EC2's API and price list publish. README.md says which file
holds what.
"""

import argparse
import gzip
import json
import re
import sys
import zipfile
from pathlib import Path

# What EC2 sells that Kubernetes can run on; others (Macs) are no machines for it.
ARCHITECTURES = {"x86_64", "arm64"}
# An interface's kind in the data files.
INTERFACES = {"interface": "i", "efa": "e", "efa-only": "o"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moto", type=Path, required=True, help="the installed package moto")
    parser.add_argument("--moto-version", required=True)
    parser.add_argument("--karpenter", type=Path, required=True, help="zip of the Go module of Karpenter's AWS provider")
    parser.add_argument("--karpenter-version", required=True)
    parser.add_argument("--date", required=True, help="what the files say when they were made")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    resources = arguments.moto / "ec2" / "resources"
    records = unpack(resources / "instance_types.json.gz")
    types = {name: it for name, it in records.items() if ARCHITECTURES & set(architectures(it))}
    tables = Tables(arguments.karpenter)

    moto = f"moto {arguments.moto_version} (Apache-2.0)"
    karpenter = f"karpenter-provider-aws {arguments.karpenter_version} (Apache-2.0)"
    write(
        arguments,
        "instance-types.txt",
        f"DescribeInstanceTypes as recorded in {moto}; `branch` and `bw` from tables in {karpenter}.",
        (line(types[name], tables) for name in sorted(types)),
    )
    write(
        arguments,
        "zones.txt",
        f"DescribeInstanceTypeOfferings as recorded in {moto}.",
        zones(resources / "instance_type_offerings" / "availability-zone", types),
    )
    write(
        arguments,
        "prices.txt",
        f"On-demand prices of {tables.priced_region} for Linux, in dollars per hour, of {tables.priced_at}, from a table in {karpenter}.",
        (f"{name} {price}" for name, price in sorted(tables.prices.items()) if name in types),
    )


def unpack(path):
    with gzip.open(path) as file:
        return json.load(file)


def write(arguments, name, source, lines):
    path = arguments.out / name
    with path.open("w") as file:
        file.write(f"# Written by `cargo xtask ec2-data` on {arguments.date}; do not edit. See README.md.\n# {source}\n")
        for text in lines:
            file.write(text + "\n")
    print(f"wrote {path}", file=sys.stderr)


class Tables:
    """What EC2's API does not tell."""

    def __init__(self, module):
        with zipfile.ZipFile(module) as archive:
            names = {name.rsplit("/", 1)[1]: name for name in archive.namelist() if "/zz_generated" in name}
            files = ("vpclimits", "bandwidth", "pricing_aws")
            limits, bandwidth, prices = (archive.read(names[f"zz_generated.{file}.go"]).decode() for file in files)
        self.bandwidth = {
            name: int(mbps) for name, mbps in re.findall(r'^\s*"([^"]+)":\s*(\d+),', bandwidth, re.MULTILINE)
        }
        self.branch = {}
        for name, body in re.findall(r'^\t"([^"]+)": \{(.*?)^\t\},', limits, re.MULTILINE | re.DOTALL):
            if re.search(r"IsTrunkingCompatible:\s*true", body):
                self.branch[name] = int(re.search(r"BranchInterface:\s*(\d+)", body)[1])
        self.priced_at, self.priced_region = re.search(r"generated at (\S+) for (\S+)", prices).groups()
        region = re.search(rf'^\t"{re.escape(self.priced_region)}": \{{(.*?)^\t\}},', prices, re.MULTILINE | re.DOTALL)
        found = re.findall(r'"([a-z0-9-]+\.[a-z0-9-]+)":\s*([0-9.]+)', region[1])
        self.prices = {name: shortest(price) for name, price in found}
        assert len(self.bandwidth) > 1000 and len(self.branch) > 1000 and len(self.prices) > 1000


def shortest(decimal):
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal


def architectures(it):
    return it["ProcessorInfo"]["SupportedArchitectures"]


def line(it, tables):
    """One type as words: its name, flags, and `key=value`. What is absent or zero has no word."""
    name = it["InstanceType"]
    processor, network = it["ProcessorInfo"], it["NetworkInfo"]
    assert network["DefaultNetworkCardIndex"] == 0, name
    words = [name, f"cpu={it['VCpuInfo']['DefaultVCpus']}", f"mib={it['MemoryInfo']['SizeInMiB']}"]
    words.append("arch=" + ",".join(architectures(it)))
    words.append("maker=" + text(processor["Manufacturer"]))
    clock = processor.get("SustainedClockSpeedInGhz")
    if clock is not None:
        words.append(f"mhz={round(clock * 1000)}")
    if processor.get("SupportedFeatures"):
        words.append("features=" + ",".join(sorted(processor["SupportedFeatures"])))
    if it["BareMetal"]:
        words.append("metal")
    if it.get("Hypervisor"):
        words.append(f"hv={it['Hypervisor']}")
    words.append("use=" + ",".join(sorted(it["SupportedUsageClasses"])))
    words.append("place=" + ",".join(sorted(it["PlacementGroupInfo"]["SupportedStrategies"])))
    if it["NitroEnclavesSupport"] == "supported":
        words.append("enclaves")
    storage = it.get("InstanceStorageInfo")
    if storage:
        words.append(f"store={storage['TotalSizeInGB']}:{storage['NvmeSupport']}")
    ebs = it["EbsInfo"]
    words.append(f"ebs={ebs['EbsOptimizedSupport']}:{ebs.get('EbsOptimizedInfo', {}).get('MaximumBandwidthInMbps', 0)}")
    words.append(f"ena={network['EnaSupport']}")
    if network["EncryptionInTransitSupported"]:
        words.append("encrypts")
    words.append(f"ipv4={network['Ipv4AddressesPerInterface']}")
    words.append("cards=" + ",".join(cards(name, network["NetworkCards"])))
    if network.get("EfaInfo"):
        words.append(f"efa={network['EfaInfo']['MaximumEfaInterfaces']}")
    if name in tables.bandwidth:
        words.append(f"bw={tables.bandwidth[name]}")
    if name in tables.branch:
        words.append(f"branch={tables.branch[name]}")
    for gpu in it.get("GpuInfo", {}).get("Gpus", []):
        memory = gpu["MemoryInfo"]["SizeInMiB"]
        words.append(f"gpu={text(gpu['Manufacturer'])}:{text(gpu['Name'])}:{gpu['Count']}:{memory}:{gpu['LogicalGpuCount']}")
    for device in it.get("NeuronInfo", {}).get("NeuronDevices", []):
        words.append(f"neuron={text(device['Name'])}:{device['Count']}:{device['CoreInfo']['Count']}")
    for accelerator in it.get("InferenceAcceleratorInfo", {}).get("Accelerators", []):
        words.append(f"inference={text(accelerator['Manufacturer'])}:{text(accelerator['Name'])}:{accelerator['Count']}")
    return " ".join(words)


def text(value):
    assert not re.search(r"[_:\n=]", value), value
    return value.replace(" ", "_")


def cards(name, listed):
    """Runs of equal cards: how many, how many interfaces each, of which kinds, and the steady Mbit/s of one."""
    kinds = []
    for index, card in enumerate(sorted(listed, key=lambda card: card["NetworkCardIndex"])):
        assert card["NetworkCardIndex"] == index, name
        letters = "".join(INTERFACES[kind] for kind in sorted(card.get("InterfaceTypes", ["interface"]), key=list(INTERFACES).index))
        kinds.append(f"{card['MaximumNetworkInterfaces']}:{letters}:{round(card['BaselineBandwidthInGbps'] * 1000)}")
    runs = []
    for kind in kinds:
        if runs and runs[-1][1] == kind:
            runs[-1][0] += 1
        else:
            runs.append([1, kind])
    return [f"{count}x{kind}" for count, kind in runs]


def zones(folder, types):
    """First the regions with the letters of their zones, then per type and region a hexadecimal set of zones."""
    letters, offered = {}, {}
    for path in sorted(folder.glob("*.json.gz")):
        region = path.name.removesuffix(".json.gz")
        rows = [row for row in unpack(path) if row["InstanceType"] in types]
        found = sorted({row["Location"] for row in rows})
        if not found:
            continue
        assert all(re.fullmatch(re.escape(region) + "[a-z]", zone) for zone in found), (region, found)
        letters[region] = [zone.removeprefix(region) for zone in found]
        for row in rows:
            index = letters[region].index(row["Location"].removeprefix(region))
            sets = offered.setdefault(row["InstanceType"], {})
            sets[region] = sets.get(region, 0) | 1 << index
    yield "regions " + " ".join(f"{region}:{''.join(letters[region])}" for region in letters)
    for name in sorted(offered):
        yield name + " " + " ".join(f"{offered[name].get(region, 0):x}" for region in letters)


if __name__ == "__main__":
    main()
