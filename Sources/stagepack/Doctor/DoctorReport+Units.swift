import Glibc
import StageModel
import StageSystem
import StagingService
import SystemPackage

extension DoctorReport {
    private static let timer = "stagepack-periodic.timer"
    private static let service = "stagepack-periodic.service"
    private static let socket = "stagepackd.socket"
    private static let daemon = "stagepackd.service"

    /// Checks that systemd starts periodic runs and the daemon.
    mutating func checkUnits(
        environment: [String: String],
        folders: RegistrationFolders
    ) async {
        guard FileStatus.exists("/run/systemd/system") else {
            add(
                .note,
                subject: "timer",
                finding:
                    "systemd does not run: packs are not completed, updated and cleaned up automatically",
                hint: "run \(Self.collection) and 'stagepack prefetch --all --event periodic' four "
                    + "times a day"
            )
            return
        }
        let names = [Self.timer, Self.service, Self.socket, Self.daemon]
        guard let states = await UnitStates.ask(for: names) else {
            add(
                .note,
                subject: "timer",
                finding: "systemd does not answer",
                hint: "run 'systemctl status \(Self.timer)'"
            )
            return
        }
        check(states)
        guard geteuid() != 0, folders.hasUserApplications else { return }
        checkUsersTimer(await UnitStates.ask(for: [Self.timer], of: ["--user"]))
    }

    private mutating func check(_ states: UnitStates) {
        switch states[Self.timer] {
        case nil:
            add(
                .problem,
                subject: "timer",
                finding:
                    "'\(Self.timer)' is not installed: packs are not completed and updated automatically",
                hint:
                    "install the package, or in its source run 'sudo make install install-service PREFIX=/usr'"
            )
        case let timer? where !timer.isActive:
            add(
                .problem,
                subject: "timer",
                finding: "'\(Self.timer)' \(timer.fault)",
                hint: "as root, run '\(timer.commandToStart(Self.timer, of: "systemctl"))'"
            )
        default: add(.good, subject: "timer", finding: "'\(Self.timer)' runs")
        }
        _ = addFailure(of: Self.service, subject: "periodic run", in: states)
        let hasDaemonFailed = addFailure(of: Self.daemon, subject: "daemon", in: states)
        guard let socket = states[Self.socket] else { return }
        if socket.isActive {
            if hasDaemonFailed { return }
            add(.good, subject: "daemon", finding: "'\(Self.socket)' waits for clients")
        } else {
            add(
                .problem,
                subject: "daemon",
                finding:
                    "'\(Self.socket)' \(socket.fault): transfers end with the program that asked for them",
                hint: "as root, run '\(socket.commandToStart(Self.socket, of: "systemctl"))'"
            )
        }
    }

    /// Adds the failure of a service's last execution, if there is one; returns whether there is.
    private mutating func addFailure(
        of name: String,
        subject: String,
        in states: UnitStates
    ) -> Bool {
        guard let service = states[name], service.result != "success" else { return false }
        add(
            .problem,
            subject: subject,
            finding: "'\(name)' failed: \(service.result)",
            hint: "run 'journalctl --unit \(name)'"
        )
        return true
    }

    /// Checks that a timer updates the applications which this user has registered.
    private mutating func checkUsersTimer(_ states: UnitStates?) {
        let timer = states?[Self.timer]
        guard timer?.isActive != true else {
            return add(.good, subject: "user's timer", finding: "'\(Self.timer)' runs")
        }
        let manager = "systemctl --user"
        let command =
            timer?.commandToStart(Self.timer, of: manager)
            ?? "\(manager) enable --now \(Self.timer)"
        add(
            .note,
            subject: "user's timer",
            finding:
                "it does not run: nothing updates the packs of applications that this user has registered",
            hint: "run '\(command)'"
        )
    }
}

extension UnitStates.Unit {
    /// The reason why the unit is not active, as a fragment.
    fileprivate var fault: String { isMasked ? "is masked, so it does not run" : "does not run" }

    /// Returns the command that starts the unit now and at each boot; systemd enables no masked unit.
    fileprivate func commandToStart(_ name: String, of manager: String) -> String {
        let start = "\(manager) enable --now \(name)"
        return isMasked ? "\(manager) unmask \(name) && \(start)" : start
    }

    private var isMasked: Bool { load.hasPrefix("masked") }
}

extension RegistrationFolders {
    /// True if an application is registered in this user's folder.
    fileprivate var hasUserApplications: Bool {
        guard let folder = folderForWriting,
            // A folder that does not exist contains no registration.
            let entries = try? Directory.open(folder).entries()
        else { return false }
        return entries.contains { $0.path.string.hasSuffix(".json") }
    }
}
