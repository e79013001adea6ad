import StageSystem

extension DoctorReport {
    mutating func checkMachine(isOffline: Bool) {
        checkConfinement()
        if isOffline { add(.note, "network", "offline by option or STAGEPACK_OFFLINE") }
        switch SystemClock.isSynchronized {
        case true?: add(.good, "clock", "synchronized")
        case false?:
            add(
                .note,
                "clock",
                "no time source keeps it: certificates and signed metadata may count as expired",
                "as root, run 'timedatectl set-ntp true'"
            )
        case nil: break
        }
    }

    /// Checks that the kernel can confine decoders; without confinement, root decodes no archives.
    private mutating func checkConfinement() {
        let version = Confinement.supportedVersion
        guard version == 0 || !Confinement.supportsFilter else {
            add(.good, "confinement", "Landlock, version \(version), and seccomp")
            return
        }
        let isPrivileged = Confinement.isPrivileged
        let missing = version > 0 ? "no filters of system calls (seccomp)" : "no Landlock"
        let consequence =
            isPrivileged ? "root unpacks no archive" : "archives are unpacked with less confinement"
        add(
            isPrivileged ? .problem : .note,
            "confinement",
            "this kernel has \(missing): \(consequence)",
            version > 0
                ? "boot a kernel with seccomp filters"
                : "boot Linux 5.13 or later with Landlock enabled"
        )
    }
}
