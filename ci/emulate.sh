#!/bin/sh
# Make a virtual environment whose Python runs as on another x86-64 CPU, by qemu's user mode.
# Usage: ci/emulate.sh VENV CPU OUT, such as: ci/emulate.sh .venv Haswell .venv-haswell
# Instructions, /proc/cpuinfo and sys.executable are those of the other CPU, in children too.
set -eu
venv=$1 cpu=$2 out=$3
command -v qemu-x86_64 >/dev/null || { echo "needs qemu-x86_64: apt-get install qemu-user" >&2; exit 1; }
case $cpu in
    # Without what qemu does not have, of which it warns.
    Haswell)
        features="sse4_1 sse4_2 avx avx2 fma f16c"
        vendor=GenuineIntel; model=$cpu-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid ;;
    # Before AVX: ONNX Runtime takes other kernels, whose last bits differ.
    Nehalem) features="sse4_1 sse4_2"; vendor=GenuineIntel; model=$cpu ;;
    *) echo "the features of $cpu are not known here" >&2; exit 1 ;;
esac
rm -rf "$out"
mkdir -p "$out/bin"
place=$(cd "$out" && pwd)
ln -s "$(cd "$venv" && pwd)/lib" "$place/lib"
cp "$venv/pyvenv.cfg" "$place/pyvenv.cfg"
printf 'processor\t: 0\nvendor_id\t: %s\nmodel name\t: %s (emulated)\nflags\t\t: %s\n' \
    "$vendor" "$cpu" "$features" >"$place/cpuinfo"
# qemu shows its host's /proc/cpuinfo.
cc -shared -fPIC -O1 -DCPUINFO="\"$place/cpuinfo\"" -o "$place/cpuinfo.so" ci/cpuinfo.c -ldl
cat >"$place/bin/python" <<END
#!/bin/sh
exec qemu-x86_64 -cpu $model -E LD_PRELOAD=$place/cpuinfo.so -0 "\$0" \\
    "$(readlink -f "$venv/bin/python")" "\$@"
END
printf '#!/bin/sh\nexec %s/bin/python -m aotc.cli.main "$@"\n' "$place" >"$place/bin/aotc"
chmod +x "$place/bin/python" "$place/bin/aotc"
