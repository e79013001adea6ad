import FoundationEssentials
import Glibc
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTrust
package import SystemPackage

// The only place that decides which root verifies a manifest.

extension Registration {
    /// The application, if its manifest is in a format of its own; else `nil`.
    var customFormatApplication: ApplicationID? {
        manifestFormat == .application ? application : nil
    }

    /// Returns the ledger of the application's signed metadata, based on the root of the registration; `nil`
    /// if the registration trusts the transport alone.
    ///
    /// - Parameters:
    ///   - reader: The container with the stored metadata; `nil` if there is none.
    ///   - file: The file of the registration, which errors name; `nil` if it was not read from a file.
    /// - Throws: ``StagingFailure/registration(_:file:)`` if the root cannot be read, or is not valid.
    /// - Returns: The ledger.
    func ledger(
        _ reader: ContainerReader?,
        file: FilePath?
    ) throws(StagingFailure) -> TrustLedger? {
        let found: [UInt8]?
        do throws(StagingFailure) {
            found = try root(refusingWriters: true)
        } catch {
            guard case .registration(let fault, _) = error else { throw error }
            let name =
                file.map { "registration '\($0.string.escapedForDisplay)'" }
                ?? "the registration of '\(application)'"
            throw .registration("\(name): \(fault)", file: file)
        }
        guard let metadata = found else { return nil }
        return try .reading(metadata, stored: reader, of: application)
    }

    /// Returns the root metadata that the registration names or contains; `nil` if there is none.
    private func root(refusingWriters: Bool) throws(StagingFailure) -> [UInt8]? {
        switch trust {
        case .transport: return nil
        case .root(let path):
            return try RootFile(FilePath(path)).bytes(refusingWriters: refusingWriters)
        case .inlineRoot(let json):
            // The check for other users' write access took place when the registration was read.
            let bytes = Array(json.utf8)
            do throws(TrustError) {
                _ = try RootMetadata(trusted: bytes)
            } catch {
                throw .registration("root metadata in the registration: \(error)")
            }
            return bytes
        }
    }

    /// Reads the root that the registration names or contains, if any, to check it.
    ///
    /// - Parameter isInstalled: Pass `true` to check the owner and mode of the root's file, too, which count
    ///   once the registration is in effect.
    /// - Throws: ``StagingFailure/registration(_:)`` if the root cannot be read, or is not valid.
    package func checkRoot(isInstalled: Bool = false) throws(StagingFailure) {
        _ = try root(refusingWriters: isInstalled)
    }
}

extension StagingTarget {
    /// Returns the ledger of the manifests that the target names by URL; `nil` if the target has no root.
    func ledger(_ reader: ContainerReader?) throws(StagingFailure) -> TrustLedger? {
        guard let root else { return nil }
        let record = try reader.map { reader throws(StagingFailure) in
            try stored(reader).first
        }
        let manifest = record.flatMap { $0 }.flatMap { try? $0.manifest() }
        return try .reading(
            try RootFile(root).bytes(refusingWriters: geteuid() == 0),
            stored: reader,
            of: application ?? manifest?.application
        )
    }

    /// Returns the source of a manifest that the container has stored, with the root of its application's
    /// registration, if any.
    func source(
        of record: StoredManifest,
        _ reader: ContainerReader
    ) throws(StagingFailure) -> ManifestSource {
        var source = ManifestSource(urls: [record.url], applicationVersion: applicationVersion)
        source.customFormatApplication = record.customFormatApplication
        // A manifest that cannot be read is downloaded again, and checked then.
        guard let manifest = try? record.manifest() else { return source }
        if let root {
            source.application = manifest.application
            source.trust = try .reading(
                try RootFile(root).bytes(refusingWriters: geteuid() == 0),
                stored: reader,
                of: manifest.application
            )
        } else if let found = try registration(of: manifest.application) {
            let registered = found.value
            if registered.manifestURLs.contains(record.url) {
                // The registration may have changed the format since the manifest was stored.
                source.customFormatApplication = registered.customFormatApplication
            }
            source.trust = try registered.ledger(reader, file: found.path)
            if source.trust != nil { source.application = registered.application }
        }
        return source
    }

    /// Returns the ledger of a stored manifest from the newest root that the container has stored; `nil` if there is none.
    ///
    /// Only shows the state of the metadata: a container's root verifies no manifest.
    func storedLedger(
        of record: StoredManifest,
        _ reader: ContainerReader
    ) throws(StagingFailure) -> TrustLedger? {
        do throws(ContainerError) {
            // Decoding a manifest of thousands of packs takes longer than all else, and few are signed. One that cannot be
            // read is reported as such.
            guard try reader.hasTrust(), let application = (try? record.manifest())?.application
            else { return nil }
            let stored = try reader.storedTrust(for: application)
            guard let newest = stored.roots.max(by: { $0.key < $1.key }) else { return nil }
            return TrustLedger(root: newest.value, stored: stored, application: application)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// The file of the newest root that the container has stored, for a command that names no root and whose manifest is
    /// refused without one; `nil` if the manifest needs none, or if the target has several manifests.
    package var storedRoot: FilePath? {
        // The command itself reports files that cannot be read.
        guard registration == nil, root == nil, let path = knownContainer,
            let reader = try? ContainerReader.open(path), (try? reader.hasTrust()) == true,
            let records = try? stored(reader),
            records.count == 1, let application = (try? records[0].manifest())?.application,
            (try? registeredRoot(of: application, for: path)) == nil
        else { return nil }
        return try? reader.newestRootFile(of: application)
    }

    /// Returns the registration of an application on this machine, or `nil` if it has none.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if the registration cannot be used, since it may name a
    ///   root.
    private func registration(
        of application: ApplicationID
    ) throws(StagingFailure) -> RegistrationFolders.Found? {
        do throws(StagingFailure) {
            return try RegistrationFolders(environment: environment).registration(of: application)
        } catch {
            guard case .notRegistered = error else { throw error }
            return nil
        }
    }

    /// Refuses an unsigned manifest in any of three cases: its application is registered with a root for the
    /// same container; the container has a signed manifest of the application; or the manifest names a pack
    /// of another application with signed manifests.
    ///
    /// Only the application's own registration may state that signatures are no longer needed.
    func checkNeedsNoRoot(_ manifest: Manifest) throws(StageError) {
        guard let path = try? container(for: manifest) else { return }
        let application = manifest.application
        // A registration that cannot be used may name a root.
        var isSigned = false
        if registration == nil { isSigned = try registeredRoot(of: application, for: path) != nil }
        var refusal: ManifestRefusal?
        do throws(ContainerError) {
            let reader = try ContainerReader.open(path)
            if registration == nil, let reader, !isSigned {
                isSigned = try reader.hasTrust(for: application)
            }
            if isSigned {
                refusal = .unsigned
            } else if let reader {
                refusal = try refusalOfPack(of: manifest, in: path, by: reader)
            }
        } catch {
            throw .container(error)
        }
        guard let refusal else { return }
        throw .manifestRefused(url: firstURL(of: application), refusal)
    }

    /// Returns a refusal if a pack is named by the signed manifest of another application or, for a manifest
    /// in the application's own format, was staged for that application before.
    private func refusalOfPack(
        of manifest: Manifest,
        in path: FilePath,
        by reader: ContainerReader
    ) throws(ContainerError) -> ManifestRefusal? {
        for other in try reader.applications() where other != manifest.application {
            // A manifest that cannot be read names no packs.
            guard try needsRoot(other, in: path, reader: reader),
                let record = try reader.storedManifest(for: other),
                let signed = try? record.manifest(of: other)
            else { continue }
            var names = Set(signed.packs.map(\.id))
            if record.customFormatApplication != nil { names = try reader.stagedPacks(of: other) }
            guard let pack = manifest.packs.first(where: { names.contains($0.id) }) else {
                continue
            }
            return .unsignedPack(pack.id, of: other)
        }
        return nil
    }

    /// Returns whether an application's manifests in a container must be signed.
    private func needsRoot(
        _ application: ApplicationID,
        in path: FilePath,
        reader: ContainerReader
    ) throws(ContainerError) -> Bool {
        // If the registration cannot be used, the container's record of signed manifests decides.
        let root = (try? registeredRoot(of: application, for: path)) ?? nil
        if root != nil { return true }
        return try reader.hasTrust(for: application)
    }

    /// Returns the root that an application is registered with for a container; `nil` if there is none.
    ///
    /// - Throws: ``StageError/manifestRefused(url:_:)`` if the registration cannot be used.
    private func registeredRoot(
        of application: ApplicationID,
        for path: FilePath
    ) throws(StageError) -> RegisteredRoot? {
        let found: Registration?
        do throws(StagingFailure) {
            found = try registration(of: application)?.value
        } catch {
            let refusal = ManifestRefusal.unusableRegistration("\(error)")
            throw .manifestRefused(url: firstURL(of: application), refusal)
        }
        guard let registered = found, let root = RegisteredRoot(registered.trust),
            container(of: registered.group).isSameDirectory(as: path)
        else { return nil }
        return root
    }

    /// Refuses the target's own root if the application is registered with another one for the same
    /// container.
    func checkRoot(of application: ApplicationID) throws(StageError) {
        guard registration == nil, let root, let path = container(of: application),
            let registered = try registeredRoot(of: application, for: path)
        else { return }
        guard RegisteredRoot.file(root).text != registered.text else { return }
        throw .manifestRefused(url: firstURL(of: application), .otherRoot(application))
    }

    /// Returns the container of an application without a registration in the target.
    func container(of application: ApplicationID) -> FilePath? {
        knownContainer ?? (try? ApplicationGroupID(application.text)).map { container(of: $0) }
    }

    private func firstURL(of application: ApplicationID) -> String {
        registration?.manifestURLs.first ?? manifests.first ?? storedURL(of: application)
            ?? application.text
    }

    /// Returns the URL of the manifest that the container has stored for an application; `nil` if it has none.
    private func storedURL(of application: ApplicationID) -> String? {
        // Only names the manifest in an error that is thrown in any case.
        guard let path = container(of: application), let reader = try? ContainerReader.open(path)
        else { return nil }
        return (try? reader.storedManifest(for: application))?.url
    }
}

extension FilePath {
    /// Returns whether two paths lead to the same directory, also if it does not exist yet.
    ///
    /// Compares device and inode numbers, since links and bind mounts give a directory other paths.
    func isSameDirectory(as other: FilePath) -> Bool {
        guard let (left, leftRest) = existing, let (right, rightRest) = other.existing else {
            return self == other
        }
        return left.device == right.device && left.inode == right.inode && leftRest == rightRest
    }

    /// The status of the longest existing part of the path, and the missing components after it.
    private var existing: (FileStatus, [Component])? {
        var path = lexicallyNormalized()
        if FileStatus(following: self) != nil { path = self }
        var missing: [Component] = []
        while true {
            if let status = FileStatus(following: path) { return (status, missing) }
            guard path != ".", let last = path.lastComponent else { return nil }
            missing.insert(last, at: 0)
            path.removeLastComponent()
            if path.isEmpty { path = "." }
        }
    }
}

/// Root metadata in a file or in a registration.
private enum RegisteredRoot {
    case file(FilePath)
    case inline(json: String)

    init?(_ trust: Registration.Trust) {
        switch trust {
        case .transport: return nil
        case .root(let path): self = .file(FilePath(path))
        case .inlineRoot(let json): self = .inline(json: json)
        }
    }

    /// The metadata as compact JSON, members sorted by name; `nil` if it cannot be read.
    var text: String? {
        switch self {
        case .file(let path):
            let limit = Int(TrustLimits().rootLength.rawValue)
            // The target's own file was read before, so only a registered one can be unreadable here, and
            // then differs.
            guard let bytes = try? File.open(readingRegular: path).readAll(limit: limit) else {
                return nil
            }
            return try? JSONNode(json: bytes).value.text
        case .inline(let json): return json
        }
    }
}

/// A file with root metadata, which a registration or a command names.
private struct RootFile {
    let path: FilePath

    init(_ path: FilePath) { self.path = path }

    /// Reads the root metadata.
    ///
    /// - Parameter refusingWriters: Pass `true` to refuse a file that users other than this one and root may
    ///   change, since they could add keys of their own.
    /// - Returns: The bytes, which are valid root metadata.
    /// - Throws: ``StagingFailure/registration(_:)`` if the file cannot be read, is refused, or is not valid.
    func bytes(refusingWriters: Bool) throws(StagingFailure) -> [UInt8] {
        let bytes: [UInt8]
        var fault: String?
        do throws(FileError) {
            // Only a regular file: reading a FIFO would block a hook.
            let file = try File.open(readingRegular: path)
            let status = try file.status()
            if refusingWriters, let reason = status.foreignWriter {
                fault = "\(reason): run '\(status.commandsForOwner(of: path))'"
            }
            bytes = try file.readAll(limit: Int(TrustLimits().rootLength.rawValue))
        } catch {
            throw .registration("root metadata: \(error)")
        }
        if let fault { throw .registration("root metadata '\(path)': \(fault)") }
        do throws(TrustError) {
            _ = try RootMetadata(trusted: bytes)
        } catch {
            throw .registration("root metadata '\(path)': \(error)")
        }
        return bytes
    }
}

extension TrustLedger {
    /// Creates a ledger from root metadata and the metadata that a container has stored for the application.
    static func reading(
        _ root: [UInt8],
        stored reader: ContainerReader?,
        of application: ApplicationID?
    ) throws(StagingFailure) -> TrustLedger {
        var trust = StoredTrust()
        if let reader, let application {
            do throws(ContainerError) {
                trust = try reader.storedTrust(for: application)
            } catch {
                throw StagingFailure(error)
            }
        }
        return TrustLedger(root: root, stored: trust, application: application)
    }
}
