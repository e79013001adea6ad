import StageControl
import StageDaemonCommand
import StageSystem
import SystemPackage

extension DoctorReport {
    mutating func checkMachine(isOffline: Bool) {
        checkConfinement()
        checkSettings()
        checkDaemonSettings()
        checkDaemonDisks()
        if isOffline {
            add(
                .note,
                subject: "network",
                finding: "offline by option or STAGEPACK_OFFLINE",
                hint: "leave out --offline, and unset STAGEPACK_OFFLINE"
            )
        }
        switch SystemClock.isSynchronized {
        case true?: add(.good, subject: "clock", finding: "synchronized")
        case false?:
            add(
                .note,
                subject: "clock",
                finding:
                    "no time source keeps it: certificates and signed metadata may count as expired",
                hint: FileStatus.exists("/run/systemd/system")
                    ? "as root, run 'timedatectl set-ntp true'"
                    : "install a client of the Network Time Protocol, such as chrony"
            )
        case nil: break
        }
    }

    /// Checks that the daemons that listen at this user's sockets respond.
    mutating func checkDaemons(environment: [String: String]) async {
        for path in ControlSocket.candidates(environment: environment) {
            do throws(ControlError) {
                _ = try await withBlockingThread { () throws(ControlError) in
                    let client = ControlClient(path: path)
                    return try client.answer(to: .status, timeout: ControlClient.discoveryTimeout)
                }
            } catch {
                switch error {
                // There is none: the checks of systemd's units report one that should run.
                case .notRunning, .pathTooLong: continue
                default: break
                }
                var failure = CommandFailure(error)
                failure.hint = failure.hint ?? "restart the daemon"
                add(failure, subject: "daemon")
            }
        }
    }

    /// Checks the configuration file of the command, if there is one.
    private mutating func checkSettings() {
        let subject = "configuration"
        do throws(CommandFailure) {
            _ = try SettingsFile.authorities(try SettingsFile.settings())
            guard SettingsFile.exists else { return }
            add(.good, subject: subject, finding: "'\(SettingsFile.path)'")
        } catch {
            add(error, subject: subject)
        }
    }

    /// Checks the configuration files of the system's daemon and of the user's own.
    private mutating func checkDaemonSettings() {
        for file in DaemonCommand.configurationFiles(environment: ProcessEnvironment.current) {
            let subject = file.isSystem ? "daemon's configuration" : "own daemon's configuration"
            guard let fault = file.fault else {
                add(.good, subject: subject, finding: "'\(file.path)'")
                continue
            }
            let restart =
                file.isSystem
                ? "as root, run 'systemctl restart stagepackd.service'"
                : "run 'systemctl --user restart stagepackd.service'"
            add(.problem, subject: subject, finding: fault, hint: "correct it; \(restart)")
        }
    }

    /// Checks that the disks of the system's daemon and of the user's own can be written, and have space for transfers.
    private mutating func checkDaemonDisks() {
        for disk in DaemonDisk.all(environment: ProcessEnvironment.current) {
            let finding: String
            let hint: String
            if disk.isReadOnly {
                finding = "is on a read-only file system"
                hint = "repair the file system, and make it writable"
            } else if disk.isFull {
                finding = "has \(disk.free) free, and the daemon leaves \(disk.reserve) free"
                hint = "free some space, or set a smaller 'reserve' in 'stagepackd.json'"
            } else if disk.isOutOfInodes {
                finding = "is on a file system without free inodes"
                hint = FileError.inodeAdvice
            } else {
                continue
            }
            add(
                .problem,
                subject: disk.isSystem ? "daemon's disk" : "own daemon's disk",
                finding: "'\(disk.path)' \(finding): its transfers wait",
                hint: hint
            )
        }
    }

    /// Checks that the kernel can confine decoders; without confinement, root decodes no archives.
    private mutating func checkConfinement() {
        let version = Confinement.supportedVersion
        guard version == 0 || !Confinement.supportsFilter else {
            add(.good, subject: "confinement", finding: "Landlock, version \(version), and seccomp")
            return
        }
        let isPrivileged = Confinement.isPrivileged
        let missing = version > 0 ? "no filters of system calls (seccomp)" : "no Landlock"
        let consequence =
            isPrivileged
            ? "root cannot unpack archives" : "archives are unpacked with less confinement"
        add(
            isPrivileged ? .problem : .note,
            subject: "confinement",
            finding: "this kernel has \(missing): \(consequence)",
            hint: version > 0
                ? "boot a kernel with seccomp filters"
                : "boot Linux 5.13 or later with Landlock enabled"
        )
    }
}
