import ArgumentParser
import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StagingService
import SystemPackage

struct DoctorCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Check the machine and the container, and say what to do.",
        discussion: "Uses no network. Ends with status 3 if there is a problem."
    )

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        var report = DoctorReport()
        report.checkMachine(isOffline: session.isOffline)
        if let path = session.knownContainer {
            report.checkContainer(at: path, session)
        } else {
            report.add(.note, "container", "none is named", "pass --container DIR or --app ID")
        }
        Console.print(report, asJSON: json)
        return report.checks.contains { $0.level == .problem } ? .findings : .success
    }
}

/// What `doctor` prints.
struct DoctorReport: Codable, CustomStringConvertible {
    /// How much a check weighs.
    enum Level: String, Codable {
        case good = "ok"
        case note
        case problem
    }

    struct Check: Codable {
        var level: Level
        var subject: String
        var finding: String
        var hint: String?
    }

    private(set) var checks: [Check] = []

    mutating func add(_ level: Level, _ subject: String, _ finding: String, _ hint: String? = nil) {
        checks.append(Check(level: level, subject: subject, finding: finding, hint: hint))
    }

    var description: String {
        checks.map { check in
            let line = "\(check.level.rawValue): \(check.subject): \(check.finding)"
            return check.hint.map { "\(line)\n  hint: \($0)" } ?? line
        }.joined(separator: "\n")
    }
}

extension DoctorReport {
    fileprivate mutating func checkMachine(isOffline: Bool) {
        checkConfinement()
        if isOffline { add(.note, "network", "offline by option or STAGEPACK_OFFLINE") }
    }

    /// Says whether the kernel can confine decoders, without which root decodes nothing.
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

    fileprivate mutating func checkContainer(at path: FilePath, _ session: Session) {
        do throws(ContainerError) {
            guard let container = try Container.open(path) else {
                add(
                    .note,
                    "container",
                    "there is none at '\(path)' yet",
                    StagingAdvice.prefetchFirst.text(after: nil, about: nil)
                )
                return
            }
            add(.good, "container", "'\(path)'")
            try check(container)
            checkManifests(session, container)
            checkTrust(of: session, in: container)
        } catch {
            let failure = CommandFailure(error)
            add(.problem, "container", failure.message, failure.hint)
        }
    }

    private mutating func check(_ container: Container) throws(ContainerError) {
        if !container.isWritable() {
            add(.problem, "container", "this user cannot write it", "run it as its owner")
        }
        let space = try container.freeSpace()
        let free = ByteCount(space.bytes)
        if free < .mebibytes(64) {
            add(
                .problem,
                "space",
                "\(free) free",
                StagingAdvice.freeSpace.text(after: nil, about: nil)
            )
        } else {
            add(.good, "space", "\(free) free")
        }
        if let files = space.files, files < Self.filesWanted {
            add(
                .problem,
                "files",
                "the file system has room for \(files.quantity(of: "more file"))",
                "remove files ('df -i' counts them)"
                    + (HintSource.current.local("gc").map { ", or run \($0)" } ?? "")
            )
        }
        for fault in try container.reader.faults() { add(fault, in: container.root.path) }
        for id in try container.reader.packsWithGenerations() {
            if try container.reader.currentGeneration(of: id) != nil,
                try container.reader.lease(id, marksUse: false) == nil
            {
                add(
                    .problem,
                    "pack '\(id)'",
                    "its link leads nowhere",
                    Self.run(HintSource.current.staging("fetch", id.text))
                )
            }
        }
    }

    /// The hint to run a command.
    private static func run(_ command: String?) -> String? { command.map { "run \($0)" } }

    /// The files that a small pack is staged with.
    private static let filesWanted: Int64 = 256

    /// Adds what is wrong with a file or directory of the container.
    private mutating func add(_ fault: ContainerFault, in container: FilePath) {
        let name = fault.name == "." ? container : container.pushing(fault.name)
        let path = "'\(name.string.forDisplay())'"
        let quoted = CommandFailure.quoted(name.string)
        let isOfPack = fault.name.starts(with: FilePath(ContainerLayout.generations))
        let command = HintSource.current.staging(isOfPack ? "repair" : "prefetch")
        let hint =
            switch fault.problem {
            case .hasMode(_, let expected): "run \"chmod \(String(expected, radix: 8)) \(quoted)\""
            case .belongsTo(_, let expected): "run \"chown \(expected) \(quoted)\""
            case .isMissing: Self.run(command)
            case .isNo, .isDamaged: "remove it" + (command.map { ", then run \($0)" } ?? "")
            }
        add(.problem, path, fault.description, hint)
    }

    /// Says whether signed metadata is valid, and for how long.
    private mutating func checkTrust(of session: Session, in container: Container) {
        do throws(CommandFailure) {
            for trust in try session.trustSummaries(container.reader) { add(trust) }
        } catch {
            add(.problem, "trust", error.message, error.hint)
        }
    }

    private mutating func add(_ trust: TrustSummary) {
        let subject = "trust of \(trust.application)"
        let renewal = "check this machine's clock, or tell the publisher to renew the metadata"
        if let problem = trust.problem {
            let application = HintSource.current.ofApplication(trust.application)
            add(.problem, subject, problem, Self.run(application.staging("prefetch")))
        } else if let since = trust.staleSince {
            add(
                .problem,
                subject,
                "stale since \(InternetTime(since)): what is staged stays in use, nothing new is staged",
                renewal
            )
        } else {
            let root = trust.rootVersion.map(String.init) ?? "-"
            let since = trust.verified.map { ", verified \(InternetTime($0))" } ?? ""
            add(.good, subject, "root version \(root)\(since)")
        }
        for role in trust.roles where role.expiresSoon && trust.staleSince == nil {
            let date = InternetTime(role.expires)
            add(.note, subject, "the \(role.name) metadata expires soon: \(date)", renewal)
        }
    }

    private mutating func checkManifests(_ session: Session, _ container: Container) {
        do throws(CommandFailure) {
            let records = try session.stored(container.reader)
            for record in records {
                do throws(ManifestError) {
                    let manifest = try record.manifest()
                    let revision =
                        record.ownFormatOf == nil
                        ? "revision \(manifest.revision)" : "in its own format"
                    add(.good, "manifest", "\(manifest.application), \(revision)")
                } catch {
                    let hint = Self.run(HintSource.current.staging("prefetch"))
                    add(.problem, "manifest", "\(record.url): \(error)", hint)
                }
            }
        } catch {
            add(.problem, "manifest", error.message, error.hint)
        }
    }
}
