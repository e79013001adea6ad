import StageTrust
import SystemPackage

extension SigningRun {
    /// Writes the files in an order that gives readers a consistent repository at any moment.
    func publish(
        _ plan: RepositoryPlan,
        published: RootDocument?
    ) throws(SigningError) {
        let isNewRoot = plan.root.document.version != published?.document.version
        if plan.new.contains(.targets) || plan.names(manifest, as: files.manifestName.string) {
            try files.publishCopy(of: manifest)
        }
        for role in [SigningRole.targets, .snapshot] where plan.new.contains(role) {
            if let document = plan.prepared[role] { try files.publish(document, as: role) }
        }
        // Clients of the old root must be able to read the metadata until they find the new root; if the old
        // root's keys have not signed it, the new root is published first.
        let isReadable = published.map { plan.isComplete(under: $0) } ?? false
        if isNewRoot, !isReadable { try files.publish(plan.root.document, as: .root) }
        if plan.new.contains(.timestamp), let timestamp = plan.prepared[.timestamp] {
            try files.publish(timestamp, as: .timestamp)
        }
        if isNewRoot, isReadable { try files.publish(plan.root.document, as: .root) }
        if isNewRoot {
            plan.new.insert(.root)
        }
        for role in plan.new { drafts[role] = nil }
        if plan.new.contains(.snapshot), let snapshot = plan.prepared[.snapshot] {
            try files.removeSuperseded(currentSnapshot: snapshot.version)
        }
    }

    /// Stores the drafts of this run, and removes those that it published or superseded.
    ///
    /// Keeps drafts of earlier runs if this run does not sign the manifest or has no key for them.
    func storeDrafts(
        _ tasks: SigningTasks,
        under root: RootDocument?
    ) throws(SigningError) {
        let published = root.map(RepositoryPlan.init)
        try published?.read(files)
        for role in SigningRole.allCases {
            if let document = drafts[role] {
                try files.storeDraft(document, of: role)
                continue
            }
            // The root was renewed, and its draft got a later version.
            if role == .root, let root, let draft = try files.draft(.root),
                draft.version > root.document.version
            {
                continue
            }
            let isUntouched = !tasks.takesManifest || unsigned[role] != nil
            if role != .root, isUntouched, let draft = try files.draft(role),
                draft.version > published?.current[role]?.version ?? 0
            {
                continue
            }
            try files.removeDrafts(of: role)
        }
        try files.removeTemporaryFiles()
    }
}
