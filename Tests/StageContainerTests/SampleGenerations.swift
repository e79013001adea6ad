import Foundation
import StageContainer
import StageModel
import StageSystem
import SystemPackage

extension PackID {
    static let aurora = PackID(unchecked: "aurora")
}

extension Pack {
    static func aurora(version: Int) -> Pack {
        let digest = Digest(bytes: [UInt8](repeating: 7, count: Digest.byteCount))
        let archive = PackArchive(url: "aurora.tar", format: .tar, size: .zero, digest: digest)
        return Pack(
            id: .aurora,
            version: version,
            policy: .onDemand,
            archive: archive,
            installedSize: .zero,
            fileCount: 1
        )
    }
}

extension StagedPack {
    static func aurora(version: Int) -> StagedPack {
        let pack = Pack.aurora(version: version)
        let manifest = Manifest(
            application: ApplicationID(unchecked: "net.example"),
            revision: 1,
            packs: [pack]
        )
        return StagedPack(pack, of: manifest, source: "file:", stagedAt: Int64(version))
    }
}

extension Container {
    /// Publishes one pack.
    func publish(_ area: StagingArea, as record: StagedPack) throws {
        for result in publish([(area, record)]) { try result.get() }
    }

    func publishAurora(version: Int, _ text: String) throws {
        let lock = try waitForLock(.aurora)
        let area = try makeStagingArea(lock)
        try area.write("sky.svg", text)
        try publish(area, as: .aurora(version: version))
    }
}

extension StagingArea {
    func write(_ name: FilePath.Component, _ text: String) throws {
        try content.leave(name, text)
    }
}

extension Directory {
    func leave(_ name: FilePath.Component, _ text: String) throws {
        try file(creating: FilePath(name)).write(Array(text.utf8).span, at: 0)
    }
}

extension Lease {
    func text(of name: String) throws -> String {
        try String(contentsOfFile: content.appending(name).string, encoding: .utf8)
    }
}

extension Container {
    /// Acquires the lock on a pack; waits while another process or thread holds it.
    func waitForLock(_ id: PackID) throws -> PackLock {
        while true {
            if let lock = try attemptLock(id) { return lock }
            sched_yield()
        }
    }
}
