import FoundationEssentials
import Glibc
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTrust
import SystemPackage

// The one place that decides with which root a manifest is verified.

extension Registration {
    /// The application, where its manifest is in a format of its own; else `nil`.
    var ownFormatOf: ApplicationID? { manifestFormat == .application ? application : nil }

    /// The signed metadata of the application, from the root that the registration names; `nil` where the
    /// transport is all the trust there is.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if the root cannot be read, or is not valid.
    func ledger(_ reader: ContainerReader?) throws(StagingFailure) -> TrustLedger? {
        guard let root = try root(refusingWriters: true) else { return nil }
        return try .reading(root, stored: reader, of: application)
    }

    /// The root metadata that the registration names or holds; `nil` where it does neither.
    private func root(refusingWriters: Bool) throws(StagingFailure) -> [UInt8]? {
        switch trust {
        case .transport: return nil
        case .root(let path):
            return try RootFile(FilePath(path)).bytes(refusingWriters: refusingWriters)
        case .inlineRoot(let json):
            // A registration that other users may change was refused when it was read.
            let bytes = Array(json.utf8)
            do throws(TrustError) {
                _ = try RootMetadata(trusted: bytes)
            } catch {
                throw .registration("root metadata in the registration: \(error)")
            }
            return bytes
        }
    }

    /// Reads the root that the registration names or holds, if it does.
    ///
    /// Its owner and mode do not count: the registration need not be installed yet.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if the root cannot be read, or is not valid.
    package func checkRoot() throws(StagingFailure) {
        _ = try root(refusingWriters: false)
    }
}

extension StagingTarget {
    /// The signed metadata of the manifests that the target names by their URLs.
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

    /// The source of a manifest that the container has stored: with the root of its application's
    /// registration, where there is one.
    func source(
        of record: StoredManifest,
        _ reader: ContainerReader
    ) throws(StagingFailure) -> ManifestSource {
        var source = ManifestSource(urls: [record.url], applicationVersion: applicationVersion)
        source.ownFormatOf = record.ownFormatOf
        // A manifest that cannot be read is asked for anew, and looked at then.
        guard let manifest = try? record.manifest() else { return source }
        if let root {
            source.application = manifest.application
            source.trust = try .reading(
                try RootFile(root).bytes(refusingWriters: geteuid() == 0),
                stored: reader,
                of: manifest.application
            )
        } else if let registered = try registration(of: manifest.application) {
            if registered.manifestURLs.contains(record.url) {
                // The registration may have changed the format since the manifest was stored.
                source.ownFormatOf = registered.ownFormatOf
            }
            source.trust = try registered.ledger(reader)
            if source.trust != nil { source.application = registered.application }
        }
        return source
    }

    /// The registration of an application on this machine, if it has one.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if it has one that cannot be used: that may name a root.
    private func registration(
        of application: ApplicationID
    ) throws(StagingFailure) -> Registration? {
        do throws(StagingFailure) {
            return try RegistrationFolders(environment: environment).registration(of: application)
                .value
        } catch {
            guard case .notRegistered = error else { throw error }
            return nil
        }
    }

    /// Refuses a manifest that came without signatures, if its application is registered with a root for the
    /// same container, or the container has a manifest of it that was accepted for its signatures; or if it
    /// names a pack that such a manifest of another application names.
    ///
    /// A registration alone may say that signatures of its own application are needed no more.
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

    /// Refuses a pack that the signed manifest of another application names, or, where that is in a format of the
    /// application's own, that was staged for it before.
    private func refusalOfPack(
        of manifest: Manifest,
        in path: FilePath,
        by reader: ContainerReader
    ) throws(ContainerError) -> ManifestRefusal? {
        for other in try reader.applications() where other != manifest.application {
            // A manifest that cannot be read names no packs.
            guard try needsRoot(other, in: path, reader),
                let record = try reader.storedManifest(for: other),
                let signed = try? record.manifest()
            else { continue }
            var names = Set(signed.packs.map(\.id))
            if record.ownFormatOf != nil { names = try reader.stagedPacks(of: other) }
            guard let pack = manifest.packs.first(where: { names.contains($0.id) }) else {
                continue
            }
            return .unsignedPack(pack.id, of: other)
        }
        return nil
    }

    /// Whether another application's manifests in a container are those that its root stands for.
    private func needsRoot(
        _ application: ApplicationID,
        in path: FilePath,
        _ reader: ContainerReader
    ) throws(ContainerError) -> Bool {
        // Of a registration that cannot be used, the container knows what was accepted.
        let root = (try? registeredRoot(of: application, for: path)) ?? nil
        if root != nil { return true }
        return try reader.hasTrust(for: application)
    }

    /// The root that an application is registered with for a container; `nil` if there is none.
    ///
    /// - Throws: ``StageError/manifestRefused(url:_:)`` if its registration cannot be used.
    private func registeredRoot(
        of application: ApplicationID,
        for path: FilePath
    ) throws(StageError) -> RegisteredRoot? {
        let found: Registration?
        do throws(StagingFailure) {
            found = try registration(of: application)
        } catch {
            let refusal = ManifestRefusal.unusableRegistration("\(error)")
            throw .manifestRefused(url: firstURL(of: application), refusal)
        }
        guard let registered = found, let root = RegisteredRoot(registered.trust),
            container(of: registered.group).isSamePlace(as: path)
        else { return nil }
        return root
    }

    /// Refuses the target's own root for an application that is registered with another one for the same
    /// container.
    func checkRoot(of application: ApplicationID) throws(StageError) {
        guard registration == nil, let root, let path = container(of: application),
            let registered = try registeredRoot(of: application, for: path)
        else { return }
        guard RegisteredRoot.file(root).text != registered.text else { return }
        throw .manifestRefused(url: firstURL(of: application), .otherRoot(application))
    }

    /// The container of an application that no registration is meant of.
    func container(of application: ApplicationID) -> FilePath? {
        knownContainer ?? (try? ApplicationGroupID(application.text)).map { container(of: $0) }
    }

    private func firstURL(of application: ApplicationID) -> String {
        registration?.manifestURLs.first ?? manifests.first ?? application.text
    }
}

extension FilePath {
    /// Whether two paths lead to one directory, or to one that is not there yet.
    ///
    /// Links and bind mounts give a directory other paths, but neither device nor number.
    fileprivate func isSamePlace(as other: FilePath) -> Bool {
        guard let (left, leftRest) = existing, let (right, rightRest) = other.existing else {
            return self == other
        }
        return left.device == right.device && left.inode == right.inode && leftRest == rightRest
    }

    /// The longest part of the path that exists, and the names that are missing.
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

/// Root metadata that a registration names or holds, or a command names.
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
            // The caller's own was read before: a registered one that cannot be read is not the same.
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
    /// - Parameter refusingWriters: Whether a file that users other than this one and root may change is refused:
    ///   they could put in keys of their own.
    /// - Returns: The bytes, which are valid root metadata.
    /// - Throws: ``StagingFailure/registration(_:)`` if the file cannot be read, is refused, or is not valid.
    func bytes(refusingWriters: Bool) throws(StagingFailure) -> [UInt8] {
        let bytes: [UInt8]
        var writer: String?
        do throws(FileError) {
            // A fifo would hold up a hook.
            let file = try File.open(readingRegular: path)
            if refusingWriters { writer = try file.status().foreignWriter }
            bytes = try file.readAll(limit: Int(TrustLimits().rootLength.rawValue))
        } catch {
            throw .registration("root metadata: \(error)")
        }
        if let writer { throw .registration("root metadata '\(path)': \(writer)") }
        do throws(TrustError) {
            _ = try RootMetadata(trusted: bytes)
        } catch {
            throw .registration("root metadata '\(path)': \(error)")
        }
        return bytes
    }
}

extension TrustLedger {
    /// Creates a ledger from root metadata and what a container has stored of the application's.
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
