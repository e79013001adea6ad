import FoundationEssentials
import Glibc
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

extension DoctorReport {
    /// Checks the containers of a scope and their packs; hints use the current source.
    mutating func check(_ scope: ContainerScope, registrations folders: RegistrationFolders) {
        do throws(CommandFailure) {
            let view = try scope.view()
            guard !view.isEmpty else { return addNothingStaged(scope) }
            let packs = try PackCheck(scope, in: view, registrations: folders)
            checkContainers(of: scope, view: view, for: packs)
            check(packs)
            checkTrust(try scope.trust(in: view, for: packs.records))
        } catch {
            add(error, ofContainersAt: scope.containers)
        }
    }

    /// Adds the failure to read a container; for a container of this user, with the command that makes it readable.
    private mutating func add(_ failure: CommandFailure, ofContainersAt paths: [FilePath]) {
        var failure = failure
        // The general advice is to run `doctor`, which is this command.
        if failure.hint == StagingAdvice.checkContainer.text(after: nil, about: nil),
            let path = paths.first(where: { FileStatus(following: $0)?.owner == geteuid() })
        {
            let command = "chmod -R u+rwX \(CommandFailure.quoted(path.string))"
            failure.hint = "run \(HintSource.enclosed(command))"
        }
        add(failure, subject: "container")
    }

    /// Adds the finding that no container of a scope exists yet.
    private mutating func addNothingStaged(_ scope: ContainerScope) {
        if let own = scope.own {
            let absence = ContainerError.absence(at: own)
            if case .damagedRecord = absence {
                add(CommandFailure(absence), ofContainersAt: [own])
                return
            }
        }
        let location = scope.own.map { " at '\($0)'" } ?? ""
        add(
            .problem,
            subject: "container",
            finding: "there is none\(location) yet",
            hint: StagingAdvice.prefetchFirst.text(after: nil, about: nil)
        )
    }

    private mutating func checkContainers(
        of scope: ContainerScope,
        view: ContainerView,
        for packs: PackCheck
    ) {
        for position in view.positions {
            let path = view.containers[position]
            let location = scope.location(of: path).map { " (\($0.rawValue))" } ?? ""
            do throws(ContainerError) {
                guard let container = try ContainerReader.open(path) else { continue }
                add(.good, subject: "container", finding: "'\(path)'\(location)")
                // Only root checks the system's container.
                guard path == scope.own || scope.own == nil else { continue }
                try check(container, scope, for: packs)
                checkQuota(of: container, scope)
                checkAccessTimes(of: path, scope)
            } catch {
                add(CommandFailure(error), ofContainersAt: [path])
            }
        }
    }

    private mutating func check(
        _ container: ContainerReader,
        _ scope: ContainerScope,
        for packs: PackCheck
    ) throws(ContainerError) {
        let faults = try container.faults()
        // The wrong mode of the owner's own container is a finding of its own.
        let owner = FileStatus(following: container.root.path)?.owner
        let isOfMode = owner == geteuid() && faults.contains { $0.name == "." }
        if !container.root.isWritable, !isOfMode {
            add(
                .problem,
                subject: "container",
                finding: "this user cannot write it",
                hint: container.root.isOnReadOnlyFileSystem
                    ? "make the file system writable" : Self.ownersCommand(for: container.root.path)
            )
        }
        let comparison = packs.compareSpace(in: container)
        checkSpace(try container.freeSpace(), for: comparison, in: container.root.path)
        add(faults, in: container, scope)
        for id in try container.packsWithGenerations() {
            if try container.currentGeneration(of: id) != nil,
                try container.lease(id, marksUse: false) == nil
            {
                add(
                    .problem,
                    subject: "pack '\(id)'",
                    finding: "its link points to a missing directory",
                    hint: Self.run(scope.hints(about: id, in: container).staging("fetch", id.text))
                )
            }
        }
    }

    /// Checks the free space for missing packs, and for the files that every run writes.
    private mutating func checkSpace(
        _ space: FreeSpace,
        for packs: SpaceComparison,
        in path: FilePath
    ) {
        let free = ByteCount(space.bytes)
        let amounts = packs.amounts(of: space)
        let lacksFiles = space.files.map { $0 < Self.filesWanted } ?? false
        var source = HintSource.current
        if lacksFiles || packs.result > .fits || free < .mebibytes(64) {
            source.removable = RemovableContent(in: path)
        }
        let missing: StagingAdvice =
            packs.lacksInodesAlone && free >= .mebibytes(64) ? .freeInodes : .freeSpace
        let advice = missing.text(after: nil, about: nil, source: source)
        if free < .mebibytes(64) {
            add(.problem, subject: "space", finding: "\(free) free", hint: advice)
        } else {
            switch packs.result {
            case .fits: add(.good, subject: "space", finding: "\(free) free")
            case .mayFit:
                add(
                    .note,
                    subject: "space",
                    finding:
                        "\(amounts.free) free, essential packs need at most \(amounts.needed): the next run reads from "
                        + "their indexes whether they fit",
                    hint: advice
                )
            case .lacks:
                add(
                    .problem,
                    subject: "space",
                    finding:
                        "\(amounts.free) free, essential packs need \(amounts.needed): \(amounts.missing)",
                    hint: advice
                )
            }
        }
        if let files = space.files, files < Self.filesWanted {
            add(
                .problem,
                subject: "files",
                finding: "the file system has room for \(files.quantity(of: "more file"))",
                hint: StagingAdvice.freeInodes.text(after: nil, about: nil, source: source)
            )
        }
    }

    /// Checks that the packs of a container fit into its quota; a note if the next run can evict enough of them.
    private mutating func checkQuota(of container: ContainerReader, _ scope: ContainerScope) {
        guard let quota = scope.session.target.quota(of: container.root.path),
            // Other findings name what cannot be read.
            let policy = try? EvictionPolicy(container)
        else { return }
        var part = GarbageReport.Part()
        part.compare(policy, with: quota)
        guard let excess = part.excess, let removable = part.removable else { return }
        guard removable < excess else {
            return add(
                .note,
                subject: "quota",
                finding: "packs take \(policy.lastingSize) of \(quota), until the next run",
                hint: Self.run(HintSource.current.local("gc"))
            )
        }
        if let failure = scope.failure(of: part) { add(failure, subject: "quota") }
    }

    /// The number of files that a small pack takes.
    private static let filesWanted: Int64 = 256

    /// Checks that the file system keeps access times, which show that packs are in use.
    private mutating func checkAccessTimes(of path: FilePath, _ scope: ContainerScope) {
        guard let mount = Mount.holding(path), mount.options.contains("noatime") else { return }
        let hasQuota = scope.session.target.quota(of: path) != nil
        add(
            hasQuota ? .problem : .note,
            subject: "access times",
            finding:
                "'\(mount.point)' is mounted with 'noatime': packs count as never loaded, which evictions and "
                + "restrictions go by",
            hint:
                "as root, run 'mount -o remount,relatime \(CommandFailure.quoted(mount.point.string))'"
        )
    }

    /// Adds the faults of a container: one finding for all owners, and one for all files that lack only the owner's
    /// permission to write.
    private mutating func add(
        _ faults: [ContainerFault],
        in reader: ContainerReader,
        _ scope: ContainerScope
    ) {
        let container = reader.root.path
        let owners = Self.otherOwner(of: container) == nil ? faults.filter(\.isOwner) : []
        let modes = faults.filter(\.lacksWriting)
        for fault in faults {
            if owners.contains(fault) {
                guard fault == owners.first, case .belongsTo(_, let owner) = fault.problem else {
                    continue
                }
                let rest = owners.count - 1
                let command = "chown -R \(owner) \(CommandFailure.quoted(container.string))"
                add(
                    fault,
                    in: container,
                    besides: rest,
                    hint: "as root, run \(HintSource.enclosed(command))"
                )
            } else if modes.count > 1, modes.contains(fault) {
                guard fault == modes.first else { continue }
                let command = "chmod -R u+w \(CommandFailure.quoted(container.string))"
                let user = Self.otherOwner(of: container).map { "as user \($0), " } ?? ""
                add(
                    fault,
                    in: container,
                    besides: modes.count - 1,
                    hint: "\(user)run \(HintSource.enclosed(command))"
                )
            } else {
                HintSource.$current.withValue(scope.hints(about: fault.pack, in: reader)) {
                    add(fault, in: container)
                }
            }
        }
    }

    private mutating func add(
        _ fault: ContainerFault,
        in container: FilePath,
        besides rest: Int,
        hint: String
    ) {
        let name = fault.name == "." ? container : container.pushing(fault.name)
        let others = rest == 0 ? "" : "; so do \(rest.quantity(of: "other file"))"
        add(
            .problem,
            subject: "'\(name.string.forDisplay())'",
            finding: fault.description + others,
            hint: hint
        )
    }

    /// Adds a fault of a file or directory in the container.
    private mutating func add(_ fault: ContainerFault, in container: FilePath) {
        let name = fault.name == "." ? container : container.pushing(fault.name)
        let path = "'\(name.string.forDisplay())'"
        let quoted = CommandFailure.quoted(name.string)
        let isOfPack = fault.name.starts(with: FilePath(ContainerLayout.generations))
        let command = HintSource.current.staging(isOfPack ? "repair" : "prefetch")
        // If root ran the command, a user who owns a directory of the path could direct it to another file with a link.
        let owner = Self.otherOwner(of: container)
        let hint =
            switch fault.problem {
            case .hasMode(_, let expected): "run \"chmod \(String(expected, radix: 8)) \(quoted)\""
            case .belongsTo: "remove it"
            case .isMissing: Self.run(command)
            case .isDamaged where isOfPack: Self.run(command)
            case .isNo(.link):
                Self.run(fault.pack.flatMap { HintSource.current.staging("repair", $0.text) })
            case .isNo, .isDamaged, .exceedsLimit:
                "remove it" + (command.map { ", then run \($0)" } ?? "")
            }
        add(
            .problem,
            subject: path,
            finding: fault.description,
            hint: hint.map { hint in owner.map { "as user \($0), \(hint)" } ?? hint }
        )
    }

    /// Returns this command, as the owner of a container.
    private static func ownersCommand(for container: FilePath) -> String {
        guard let status = try? Directory.open(container).status("."),
            let name = Account(user: status.owner)?.name, let command = HintSource.thisCommand()
        else { return "run it as its owner" }
        return "as user \(name), run \(command)"
    }

    /// Returns the user whose container root looks at; `nil` for a container of this process's user.
    private static func otherOwner(of container: FilePath) -> UInt32? {
        guard geteuid() == 0, let status = try? Directory.open(container).status("."),
            status.owner != 0
        else { return nil }
        return status.owner
    }

    /// Checks the validity and the expiry of signed metadata.
    private mutating func checkTrust(_ summaries: [TrustSummary]) {
        for trust in summaries { add(trust) }
    }

    private mutating func add(_ trust: TrustSummary) {
        let subject = "trust of \(trust.application)"
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let isRegistered = (try? folders.registration(of: trust.application)) != nil
        let source =
            isRegistered
            ? HintSource.current.ofApplication(trust.application) : HintSource.current
        let renewal =
            "check this machine's clock with 'date', or tell the publisher to renew the metadata"
        if let problem = trust.problem {
            add(
                .problem,
                subject: subject,
                finding: problem,
                hint: Self.run(source.staging("prefetch"))
            )
        } else if let since = trust.staleSince {
            add(
                .problem,
                subject: subject,
                finding:
                    "stale since \(InternetTime(since)): what is staged stays in use, nothing new is staged",
                hint: renewal
            )
        } else {
            let root = trust.rootVersion.map(String.init) ?? "-"
            let since = trust.verified.map { ", verified \(InternetTime($0))" } ?? ""
            add(.good, subject: subject, finding: "root version \(root)\(since)")
        }
        for role in trust.roles where role.expiresSoon && trust.staleSince == nil {
            let date = InternetTime(role.expires)
            add(
                .note,
                subject: subject,
                finding: "the \(role.name) metadata expires soon: \(date)",
                hint: renewal
            )
        }
    }
}

extension ContainerScope {
    /// Returns the options that hints about a pack repeat: those of the application of the group that offers it.
    fileprivate func hints(about id: PackID?, in container: ContainerReader) -> HintSource {
        let source = HintSource.current
        let application = id.flatMap { container.application(offering: $0, among: applications) }
        return application.map { source.ofApplication($0) } ?? source
    }
}

extension ContainerFault {
    /// The pack whose link or generation the file or directory belongs to; `nil` for others.
    fileprivate var pack: PackID? {
        let names = name.components
        guard names.first == ContainerLayout.generations || names.first == ContainerLayout.packs,
            let id = names.dropFirst().first
        else { return nil }
        // A name that is not an identifier belongs to no pack.
        return try? PackID(id.string)
    }

    /// `true` for a file or directory of another user than the container's.
    fileprivate var isOwner: Bool {
        if case .belongsTo = problem { true } else { false }
    }

    /// `true` for a file or directory that lacks nothing but its owner's permission to write.
    fileprivate var lacksWriting: Bool {
        guard case .hasMode(let found, let expected) = problem else { return false }
        return found != expected && found | 0o200 == expected
    }
}

extension SpaceComparison {
    /// Returns what is free, needed and missing, in words: bytes, or inodes if these alone do not suffice.
    fileprivate func amounts(
        of space: FreeSpace
    ) -> (free: String, needed: String, missing: String) {
        if lacksInodesAlone, let free = space.inodes {
            let needed = neededInodes + AvailableSpace.reservedInodes
            let missing = max(0, needed - free)
            return (free.quantity(of: "inode"), "\(needed)", "\(missing) missing")
        }
        let (free, most) = (ByteCount(space.bytes), needed + Planner.reserve)
        return ("\(free)", "\(most)", "\(most - free) are missing")
    }
}
