import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import StagingService
import SystemPackage

extension DoctorReport {
    mutating func addNoApplication(in folders: RegistrationFolders) {
        add(
            .note,
            subject: "applications",
            finding: "none is registered\(folders.noteOfMissingHome)",
            hint: "run 'stagepack app register FILE', or pass --container DIR"
        )
    }

    /// Reports the folders of registrations that this user may not read.
    mutating func checkFolders(_ folders: RegistrationFolders) {
        for folder in folders.folders {
            do throws(FileError) {
                _ = try Directory.open(folder).entries()
            } catch  where error.errno == .permissionDenied {
                let folders = [folder.removingLastComponent(), folder]
                let names = folders.map { CommandFailure.quoted($0.string) }
                let command = "chmod 755 \(names.joined(separator: " "))"
                add(
                    .problem,
                    subject: "registrations",
                    finding: "\(error)",
                    hint: "as root, run \(HintSource.enclosed(command))"
                )
            } catch {
                // A missing folder is not an error; any other error makes the command fail.
            }
        }
    }

    /// Reports directories of the system's registrations and settings that users other than root may change: they could
    /// replace files that root uses.
    mutating func checkWriters() {
        for path in RegistrationLocations.ofSystem.flatMap({ [$0.removingLastComponent(), $0] }) {
            guard let status = FileStatus(following: path), status.kind == .directory else {
                continue
            }
            // Only root checks the owner: in a user namespace, root's files appear to belong to another user.
            let isForeign = geteuid() == 0 && status.owner != 0
            let commands = [
                isForeign ? "chown root \(path)" : nil,
                status.mode & 0o022 == 0 ? nil : "chmod go-w \(path)",
            ].compactMap(\.self)
            guard !commands.isEmpty else { continue }
            add(
                .problem,
                subject: "registrations",
                finding: "'\(path)': users other than root can replace the files in it",
                hint: "as root, run '\(commands.joined(separator: " && "))'"
            )
        }
    }

    /// Reports the folder of packages if it may be a mount point whose disk is not mounted, and containers have packs of applications
    /// that were registered in it: `gc --unregistered` leaves them.
    mutating func checkFolderOfPackages(environment: [String: String]) {
        let folder = RegistrationLocations.ofPackages.removingLastComponent()
        // A folder that cannot be read was reported before, and containers are reported with their applications.
        guard (try? Directory.open(folder).entries())?.isEmpty == true,
            let containers = try? UnregisteredReport.containers(environment: environment)
        else { return }
        let isAnyFromPackage = containers.contains { path in
            guard let reader = try? ContainerReader.open(path),
                let applications = try? reader.applicationsWithHistory()
            else { return false }
            return applications.contains { id in
                let registration = (try? reader.history(of: id))?.registration
                return registration.map { FilePath($0).removingLastComponent() }
                    == RegistrationLocations.ofPackages
            }
        }
        guard isAnyFromPackage else { return }
        add(
            .note,
            subject: "registrations",
            finding:
                "'\(folder)' is empty, and may be a mount point: packs of applications that were registered in it stay",
            hint: "mount its disk; only if none belongs there, run 'rmdir \(folder)' as root, "
                + "after which \(Self.collection) removes those packs"
        )
    }

    /// The command that removes the packs of applications that are no longer registered.
    static let collection = HintSource.quoted(["gc", "--unregistered"])

    /// Checks that the registration of an application is valid, and that the files which it names exist.
    mutating func checkRegistration(of id: ApplicationID, in folders: RegistrationFolders) {
        let subject = "registration of \(id)"
        // A missing registration makes the command fail, so it is not a finding.
        guard let path = RegistrationLocations.files(of: id, in: folders.folders).last else {
            return
        }
        let validate = Self.run(HintSource.quoted(["app", "validate", path.string]))
        let found: RegistrationFolders.Found
        do throws(StagingFailure) {
            found = try folders.registration(of: id)
        } catch {
            return add(.problem, subject: subject, finding: "\(error)", hint: validate)
        }
        let registration = found.value
        let findings =
            AppValidateCommand.findings(path).map(\.finding) + missingManifests(of: registration)
        for finding in findings {
            add(.problem, subject: subject, finding: finding, hint: validate)
        }
        if let command = RegistrationFolders.commandToShow(path) {
            add(
                .problem,
                subject: subject,
                finding:
                    "'\(path)': other users cannot read it, and their programs find no registration",
                hint: "as root, run '\(command)'"
            )
        }
        if findings.isEmpty {
            add(.good, subject: subject, finding: "version \(registration.version), '\(path)'")
        }
        checkVersion(of: found, subject: subject)
    }

    /// Notes a registration of the site with another version than that of the package, which it overrides: an update of the
    /// package changes only its own.
    private mutating func checkVersion(of found: RegistrationFolders.Found, subject: String) {
        let (path, version) = (found.path, found.value.version)
        let ofPackage = found.overridden.first { file in
            file.removingLastComponent() == RegistrationLocations.ofPackages
        }
        // A user may have an installation of another version. A file of the package that cannot be used has no effect.
        guard RegistrationLocations.ofSystem.contains(path.removingLastComponent()), let ofPackage,
            let package = try? RegistrationFolders.read(ofPackage, for: found.value.application),
            package.version != version
        else { return }
        add(
            .note,
            subject: subject,
            finding: "its version is \(version), and that of '\(ofPackage)' is \(package.version)",
            hint:
                "as root, set 'version' in '\(path)' to '\(package.version)' if that version is installed"
        )
    }

    /// Reports files that seem to be registrations and are not used because of their names.
    mutating func checkNames(in folders: RegistrationFolders) {
        for file in folders.misnamedFiles() {
            add(
                .problem,
                subject: "registrations",
                finding: "\(file)",
                hint: "rename it, or remove it"
            )
        }
    }

    /// Reports packs of registered applications in the containers of groups that they were registered for before.
    mutating func checkOtherGroups(
        of applications: [ApplicationID],
        environment: [String: String]
    ) {
        // Folders that cannot be read are reported with the applications and their containers.
        guard let registered = try? RegisteredTargets(environment: environment),
            let paths = try? UnregisteredReport.containers(environment: environment)
        else { return }
        for path in paths {
            // A container that cannot be read is reported with the applications of its group.
            guard let reader = try? ContainerReader.open(path) else { continue }
            for id in applications where registered.isElsewhere(id, than: path) {
                guard (try? reader.history(of: id))?.registration != nil else { continue }
                // A manifest that cannot be read is reported with its application.
                let awaited = try? registered.awaited(in: reader).first
                let hint =
                    if !registered.hasEssentialPacks(id) {
                        "they stay until the new one has its essential packs"
                    } else if let awaited {
                        "they stay until the manifest of '\(awaited)' is downloaded"
                    } else {
                        "the next \(Self.collection) removes them"
                    }
                add(
                    .note,
                    subject: "registration of \(id)",
                    finding: "its earlier group has packs in '\(path)'",
                    hint: hint
                )
            }
        }
    }

    /// Returns findings for manifests with a file URL whose file does not exist.
    private func missingManifests(of registration: Registration) -> [String] {
        registration.manifestURLs.compactMap { text in
            guard let url = URL(string: text), url.isFileURL,
                !FileStatus.exists(FilePath(url.path(percentEncoded: false)))
            else { return nil }
            return "manifestURLs: '\(text.forDisplay())' does not exist"
        }
    }

    /// Returns a hint that contains a command: adds the command that tries again if the hint has none.
    static func pasteable(_ hint: String?) -> String? {
        guard let command = HintSource.current.staging("prefetch") else { return hint }
        guard let hint else { return "run \(command)" }
        if hint.contains("stagepack ") { return hint }
        let isRepetition = hint.hasSuffix("run it again")
        return isRepetition ? "\(hint): \(command)" : "\(hint); to try again, run \(command)"
    }
}
